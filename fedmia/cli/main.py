"""The command `fedmia`: `fedmia simulate ..` is `python -m fedmia.simulate ..`, and so on."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

from fedmia.cli import help
from fedmia.cli.command import print_bad_input, print_page, version
from fedmia.cli.commands import COMMANDS
from fedmia.settings.errors import InputError, suggest_nearest

LIST = "list"
FEDERATED = ("flwr", "ray", "opacus")  # audits and the bench do without
# What these commands did is no part of the package: a clone has it.
IN_A_CLONE = {
    "reproduce": ("the tables of the papers are", "python -m research.papers TABLE"),
    "head": ("the trial of released heads is", "python -m research.papers head"),
    "paper": ("tables and figures of a run are", "python -m research.papers run RUN"),
}

# What took the place of two commands.
IN_STUDY = {
    "sweep": "fedmia study CONFIG --over OPTION=VALUE,VALUE --seeds N --out FOLDER",
    "tradeoff": "fedmia study CONFIG --defenses NAME,NAME --seeds N --out FOLDER",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command by its name.

    The command's module runs as `python -m` runs it, so pages, exit codes and what happens on
    Ctrl-C are the same.

    Args:
        argv: arguments without the program's name; None: those of the process.

    Returns:
        The exit code: 0 after a page, 2 bad input.

    Raises:
        SystemExit: a command ran; it holds the exit code.
    """
    first, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        if first in COMMANDS:
            sys.argv[1:] = rest
            runpy.run_module(f"fedmia.{first}", run_name="__main__", alter_sys=True)
            return 0
        page = _page(first, rest)
    except InputError as error:
        return print_bad_input(error)
    except ModuleNotFoundError as error:
        if error.name not in FEDERATED:
            raise
        why = f"fedmia {first} needs {error.name}, which is not installed: pip install {error.name}"
        return print_bad_input(InputError(why))
    return print_page(page)


def _page(first: str, rest: list[str]) -> str:
    """The page that the arguments ask for."""
    if first in ("--help", "-h", "help"):
        return help.commands_page()
    if first == "--version":
        return version()
    if first in (LIST, f"--{LIST}"):
        if rest and rest[0] in ("--help", "-h"):
            return help.commands_page()
        if len(rest) > 1:
            raise InputError(f"fedmia {LIST} takes one kind, got '{' '.join(rest)}'")
        return help.list_page(rest[0] if rest else "")
    if first in IN_A_CLONE:
        what, command = IN_A_CLONE[first]
        raise InputError(f"fedmia {first}: {what} `{command}`, in a clone")
    if first in IN_STUDY:
        raise InputError(f"fedmia {first} is no command: `{IN_STUDY[first]}`")
    known = [*COMMANDS, LIST]
    what = f"option {first}" if first.startswith("-") else f"command '{first}'"
    hint = suggest_nearest(first.lstrip("-"), known)
    raise InputError(f"unknown {what}{hint} (commands: {', '.join(known)})")


if __name__ == "__main__":
    sys.exit(main())
