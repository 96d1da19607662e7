"""A command line from its arguments to checked settings, and its errors to exit codes."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from fedmia.cli import help
from fedmia.cli.flags import Command, FlagStyle, read, refuse_options
from fedmia.config.tree import from_tree, merge, normalize
from fedmia.options.errors import (
    InputError,
    Tongue,
    format_error,
    option_style,
    spell_in_python,
    style_of_file,
    suggest_nearest,
)
from fedmia.options.yamlfile import load

BESIDE = Path(__file__).resolve().parents[2] / "configs"
# A clone has the presets beside the source, an installed copy where its data files go.
PRESETS = (
    BESIDE
    if (BESIDE / "smoke.yaml").is_file()
    else Path(sysconfig.get_path("data")) / "share" / "fedmia" / "configs"
)
# Presets by the names that they had, with what else is said of them.
RENAMED = {"cifar10-overfit": ("cifar10-one-holder", "ten clients are 'overfit-cifar10'")}
BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130  # exit codes


@dataclass(frozen=True)
class Invocation:
    """What the user asked for.

    Attributes:
        settings: the checked settings; None where only a page was asked for.
        out: folder for the results, or None.
        quiet: no progress display.
        json: print the report as JSON.
        observe: names of the run's observers.
        resume: go on with the run in `out`.
        page: text to print in place of a run (`--help`, `--list`, `--version`), or None.
    """

    settings: Any
    out: Path | None = None
    quiet: bool = False
    json: bool = False
    observe: tuple[str, ...] = ()
    resume: bool = False
    page: str | None = None


def run(
    command: Command,
    arguments: Sequence[str],
    work: Callable[[Invocation], int],
    failures: tuple[type[Exception], ...] = (),
) -> int:
    """Parse, print a page or `work`; errors in one line on standard error; the exit code.

    Args:
        failures: what `work` may raise where the run itself failed.
    """
    if (code := answer_page(command, arguments)) is not None:
        return code
    speak: Tongue = spell_in_python
    try:
        asked = parse(command, arguments)
        speak = asked.settings.tongue
        with option_style(speak):
            return work(asked)
    except InputError as error:
        return print_bad_input(error)
    except failures as error:
        print("fedmia: the run failed: " + format_error(str(error), speak), file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def answer_page(command: Command, arguments: Sequence[str]) -> int | None:
    """The exit code of a command line that asks for a page or has a wrong flag, which is printed;
    None of any other. It imports neither the settings nor torch.
    """
    try:
        flags = read(command, arguments)
        page = _page(command, flags.command)
        if page is None:
            with option_style(FlagStyle(command, flags.typed)):
                refuse_options(command, flags)
    except InputError as error:
        return print_bad_input(error)
    if page is None:
        return None
    sys.stdout.write(page.rstrip("\n") + "\n")
    return 0


def print_bad_input(error: InputError) -> int:
    """Print the error on standard error, as one line; returns the exit code 2."""
    print(f"fedmia: error: {error}", file=sys.stderr)
    return BAD_INPUT


def parse(command: Command, arguments: Sequence[str]) -> Invocation:
    """The invocation that the arguments (without the program's name) ask for.

    Raises:
        InputError: anything wrong in the arguments or the file, or that the checks refuse; its
            options are said as the user gave them.
    """
    flags = read(command, arguments)
    given, speak = flags.command, FlagStyle(command, flags.typed)
    if (page := _page(command, given)) is not None:
        return Invocation(None, page=page)
    if "resume" in given:
        given = resume_settings(given, flags.typed)
    if given.get("out") == "":
        raise InputError("--out needs a folder, got ''")
    with option_style(speak):
        tree = normalize(command.settings, flags.tree)
    observe = tuple(filter(None, given.get("observe", "").split(",")))
    if "observe" in given and not observe:
        raise InputError("--observe needs a name, got ''")
    if "config" in given:
        file = find_config(given["config"], command.presets)
        with style_of_file(file):  # on its own first, so that its mistakes are named as its own
            from_tree(command.settings, lower := _read(command, file))
        speak = FlagStyle(command, flags.typed, file, lower)
        with option_style(speak):
            tree = merge(command.settings, lower, tree, command.attacks)
    with option_style(speak):
        trust = "trust_plugins" in given
        settings: Any = from_tree(command.settings, tree, tongue=speak, trust_plugins=trust)
        command.refuse(settings)
    folder = Path(given["out"]) if "out" in given else None
    return Invocation(
        settings, folder, "quiet" in given, "json" in given, observe, "resume" in given
    )


def resume_settings(given: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, str]:
    """The command's own options for `--resume RUN`: the run's settings are its own.

    Raises:
        InputError: RUN is no run, something is given that its settings say, or these name a
            plugin from outside that is not trusted.
    """
    from fedmia.storage.runfolder import RunFolder  # torch; no page has a use for it

    run = RunFolder(folder := Path(given["resume"]), "trust_plugins" in given)
    if beside := [*(f"--{n}" for n in ("out", "config") if n in given), *typed.values()]:
        raise InputError(
            f"--resume goes on with the settings of '{folder}': {beside[0]} cannot be given too"
        )
    if not run.config.is_file():
        raise InputError(f"--resume '{folder}' is no run: it holds no {run.config.name}")
    run.tree()
    return {**given, "config": str(run.config), "out": str(folder)}


def _read(command: Command, file: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The tree of a file, over that of the file or preset that its key `base` names.

    Raises:
        InputError: a file that cannot be read, or whose base is itself.
    """
    tree = normalize(command.settings, load(file))
    if not command.presets or "base" not in tree:
        return tree
    name, whole = str(tree.pop("base")), (*above, file.resolve())
    near = file.parent / name
    base = near if near.is_file() else find_config(name, command.presets)
    if base.resolve() in whole:
        raise InputError(f"base '{name}' of {file} leads back to itself")
    return merge(command.settings, _read(command, base, whole), tree, command.attacks)


def find_config(name: str, presets: tuple[str, ...]) -> Path:
    """The file that `--config NAME` means: a path, or a preset beside the source if it is one of
    those that the patterns `presets` hold.

    Raises:
        InputError: neither.
    """
    path = Path(name)
    if path.is_file():
        return path
    if not presets:
        raise InputError(f"--config '{name}' cannot be read: no such file")
    if name in RENAMED:
        old, (name, beside) = name, RENAMED[name]
        print(f"fedmia: preset '{old}' is now '{name}'; {beside}", file=sys.stderr)
    files = sorted(p for pattern in presets for p in PRESETS.glob(pattern))
    known = [p.relative_to(PRESETS).with_suffix("").as_posix() for p in files]
    if name in known:
        return PRESETS / f"{name}.yaml"
    if path.is_dir():
        raise InputError(f"--config '{name}' is a folder; give the YAML file in it")
    hint = suggest_nearest(name, known)
    raise InputError(f"no config file or preset '{name}'{hint} (presets: {', '.join(known)})")


def _page(command: Command, given: dict[str, str]) -> str | None:
    if "help" in given:
        return help.help_page(command)
    if "list" in given:
        return help.list_page(given["list"] or command.listed)
    if "schema" in given:
        return help.schema_page(command)
    if "version" in given:
        try:
            return f"fedmia {metadata.version('fedmia')}"
        except metadata.PackageNotFoundError:
            return "fedmia (not installed)"
    return None
