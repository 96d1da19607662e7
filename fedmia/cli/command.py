"""From command-line arguments to checked settings, and from errors to exit codes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmia.cli import help
from fedmia.cli.output import open_output
from fedmia.settings.errors import IncompleteError, InputError, format_value
from fedmia.settings.flags import Command, ParsedFlags, read
from fedmia.settings.user import UserSettings, read_user_settings
from fedmia.settings.values import Text, convert
from fedmia.storage.durable import DiskError, explain

if TYPE_CHECKING:
    from fedmia.records.rows import Report
    from fedmia.report.gate import Gate

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130  # exit codes
SHUT = 3  # the report fails a condition of --fail-on
OF_RUNS = {"resume", "observe", "fail_on", "junit", "summary"}  # flags that --plan has no use for
Arguments = Sequence[str] | ParsedFlags  # without the program's name, or read already
DISK_FAILED = os.EX_IOERR  # 74: a file cannot be written or read; what is finished stays


@dataclass(frozen=True)
class Invocation:
    """A parsed command line.

    Attributes:
        settings: the checked settings; None where only a page was asked for.
        out: folder for the results, or None.
        quiet: no progress display.
        json: print the report as JSON.
        observe: names of the run's observers.
        resume: go on with the run in `out`.
        gate: conditions under which the report fails a build; None: the user names none.
        plan: print what the command would do, and write nothing.
        leak: AUC of a leak of which `plan` says how many images show it, in (0.5, 1), or None.
        page: text to print in place of a run (`--help`, `--list`, `--version`), or None.
    """

    settings: Any
    out: Path | None = None
    quiet: bool = False
    json: bool = False
    observe: tuple[str, ...] = ()
    resume: bool = False
    page: str | None = None
    gate: Gate | None = None
    plan: bool = False
    leak: float | None = None


def run(
    command: Command,
    arguments: Arguments,
    work: Callable[[Invocation], int],
    failures: tuple[type[Exception], ...] = (),
) -> int:
    """Parse the arguments, then print a page or do the work; print an error as one line.

    Args:
        arguments: without the program's name, or what `answer_page` returned.
        work: does what the invocation asks for; returns the exit code.
        failures: exceptions by which `work` says that the run itself failed.

    Returns:
        The exit code: that of `work`, 0 after a page, 1 a failed run, 2 bad input, 74 a disk that
            failed.
    """
    if isinstance(flags := answer_page(command, arguments), int):
        return flags
    with open_output():
        try:
            with explain():
                code = work(parse(command, flags))
                sys.stdout.flush()
            return code
        except IncompleteError as error:
            print_bad_input(error)
            if line := complete_line(command, flags, error):
                print(f"fedmia: this line would do:\n{line}", file=sys.stderr)
            return BAD_INPUT
        except InputError as error:
            return print_bad_input(error)
        except failures as error:
            return print_failure(str(error), FAILED)
        except DiskError as error:
            with suppress(OSError):  # a log on that very disk
                print_failure(str(error), DISK_FAILED)
            return DISK_FAILED
        except KeyboardInterrupt:
            return INTERRUPTED


def answer_page(command: Command, arguments: Arguments) -> ParsedFlags | int:
    """Print the page that the arguments ask for, or the error of a wrong flag.

    This imports neither the settings nor torch.

    Args:
        arguments: without the program's name, or what this returned before.

    Returns:
        The exit code; where the arguments ask for no page and no flag is wrong, its flags for
            `run`.
    """
    if isinstance(arguments, ParsedFlags):
        return arguments
    try:
        flags = read(command, arguments)
        page = _page(command, flags.command)
    except InputError as error:
        with open_output():
            return print_bad_input(error)
    return flags if page is None else print_page(page)


def print_page(page: str) -> int:
    """Print a page; returns 0, or 74 where a disk failed."""
    with open_output():
        try:
            print(page.rstrip("\n"), flush=True)
        except DiskError as error:
            print(f"fedmia: error: {error}", file=sys.stderr)
            return DISK_FAILED
    return 0


def print_failure(why: str, code: int) -> int:
    """Print why a run failed on standard error, as one line; returns the exit code."""
    print(f"fedmia: the run failed: {' '.join(why.split())}", file=sys.stderr)
    return code


def print_bad_input(error: InputError) -> int:
    """Print the error on standard error, as one line; returns the exit code 2."""
    print(f"fedmia: error: {error}", file=sys.stderr)
    return BAD_INPUT


def complete_line(command: Command, flags: ParsedFlags, error: IncompleteError) -> str:
    """The command as it was typed with the options that would do, quoted for a shell.

    Args:
        command: that refused.
        flags: as they were typed.
        error: names the options.

    Returns:
        The line; empty: nothing would do, or the command lacks one of these options, or has it.
    """
    if not error.options:
        return ""
    more = list[str]()
    for path, value in error.options.items():
        more += [command.flag_of(path)] + ([] if value is True else [format_value(value)])
    try:
        parse(command, [*flags.arguments, *more])
    except InputError:
        return ""
    started = sys.orig_argv
    module = started.index("-m") + 1 if "-m" in started else 0
    if started[module : module + 1] and started[module].startswith("fedmia."):
        program = started[: module + 1]
    else:
        program = command.usage.split()[1:3]  # `usage: fedmia audit ..`
    return shlex.join([*program, *flags.arguments, *more])


def parse(command: Command, arguments: Arguments) -> Invocation:
    """Read the arguments and the files that they name.

    Args:
        arguments: without the program's name, or read already.

    Returns:
        What the user asked for, with the complete settings.

    Raises:
        InputError: an argument or a file is wrong, or a check refuses the settings.
    """
    flags = arguments if isinstance(arguments, ParsedFlags) else read(command, arguments)
    own_options = flags.command
    if (page := _page(command, own_options)) is not None:
        return Invocation(None, page=page)
    if "resume" in own_options:
        own_options = resume_settings(own_options, flags.typed)
    if own_options.get("out") == "":
        raise InputError("--out needs a folder, got ''")
    if "plan" in own_options and (of_runs := OF_RUNS & own_options.keys()):
        raise InputError(
            f"--plan runs nothing: --{min(of_runs).replace('_', '-')} does not go with it"
        )
    observe = tuple(filter(None, own_options.get("observe", "").split(",")))
    if "observe" in own_options and not observe:
        raise InputError("--observe needs a name, got ''")
    file = own_options.get("config")
    user = UserSettings(command) if file is None else read_user_settings(command, file)
    settings = user.over(flags.options).complete("trust_plugins" in own_options)
    folder = Path(own_options["out"]) if "out" in own_options else None
    gate = read_gate(own_options)
    return Invocation(
        settings,
        folder,
        "quiet" in own_options,
        "json" in own_options,
        observe,
        "resume" in own_options,
        gate=gate,
        plan="plan" in own_options,
        leak=read_leak(own_options.get("plan", "")),
    )


def read_leak(text: str) -> float | None:
    """The AUC of `--plan AUC`; None of `--plan` alone.

    Raises:
        InputError: no number in (0.5, 1).
    """
    if not text:
        return None
    leak: float = convert("--plan", Text(text), float)
    if not 0.5 < leak < 1:
        raise InputError(f"--plan must be an AUC over 0.5 and under 1, got {text}")
    return leak


def read_gate(own_options: Mapping[str, str]) -> Gate | None:
    """The gate of `--fail-on` and its files.

    Raises:
        InputError: an unknown condition, or a file of a gate without conditions.
    """
    files = {name: Path(own_options[name]) for name in ("junit", "summary") if name in own_options}
    if "fail_on" not in own_options:
        if files:
            raise InputError(f"--{next(iter(files))} without --fail-on: there is no condition")
        return None
    from fedmia.report.conditions import read_conditions  # no page has a use for it
    from fedmia.report.gate import Gate

    return Gate(read_conditions(own_options["fail_on"]), **files)


def pass_gate(gate: Gate | None, report: Report, code: int) -> int:
    """The exit code of a command with a gate: 3 where the report fails a condition and nothing else
    went wrong. What became of each is a line on standard error.

    Args:
        gate: None: the user names no condition.
        report: of the run or the audit.
        code: exit code without the gate.

    Returns:
        The exit code.

    Raises:
        DiskError: a file of the gate cannot be written.
    """
    outcomes = [] if gate is None else gate.check(report)
    for outcome in outcomes:
        print(f"fedmia: gate: {outcome}", file=sys.stderr)
    return SHUT if code == 0 and any(outcome.failed for outcome in outcomes) else code


def resume_settings(own_options: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, str]:
    """The command's own options for `--resume RUN`: the settings are those of the run.

    Args:
        own_options: options of the command, such as `resume` and `quiet`, with their values.
        typed: options of the settings that the user typed, with their values.

    Returns:
        The options of the command, with the run's settings file as `config` and its folder as
        `out`.

    Raises:
        InputError: RUN is no run, the user gives options that its settings already say, or its
            settings name a plugin from outside that is not trusted.
    """
    from fedmia.storage.runfolder import RunFolder  # torch; no page has a use for it

    run = RunFolder(folder := Path(own_options["resume"]), "trust_plugins" in own_options)
    if beside := [*(f"--{n}" for n in ("out", "config") if n in own_options), *typed.values()]:
        raise InputError(
            f"--resume goes on with the settings of '{folder}': {beside[0]} cannot be given too"
        )
    run.resumable()
    return {**own_options, "config": str(run.config), "out": str(folder)}


def _page(command: Command, own_options: dict[str, str]) -> str | None:
    if "help" in own_options:
        return help.help_page(command)
    if "list" in own_options:
        return help.list_page(own_options["list"] or command.listed)
    if "schema" in own_options:
        return help.schema_page(command)
    if "version" in own_options:
        return version()
    return None


def version() -> str:
    """The text of `--version`."""
    try:
        return f"fedmia {metadata.version('fedmia')}"
    except metadata.PackageNotFoundError:
        return "fedmia (not installed)"
