"""A command of fedmia in this process, as a user types it; what it did is asserted, not how."""

from __future__ import annotations

import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from fedmia.cli.main import main

PLAIN = {"COLUMNS": "120", "NO_COLOR": "1"}  # the terminal of all tests


@dataclass(frozen=True)
class Ran:
    """What a command did.

    Attributes:
        code: its exit code.
        out: what it printed.
        err: what it printed as an error.
        folder: where it wrote, `--out`; None where it named none.
    """

    code: int
    out: str
    err: str
    folder: Path | None = None

    @property
    def report(self) -> dict[str, Any]:
        """report.json in its folder, read as strict JSON."""
        assert self.folder is not None and self.code == 0, self.err
        text = (self.folder / "report.json").read_text(encoding="utf-8")
        report: dict[str, Any] = json.loads(text, parse_constant=_refuse)
        return report


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} in strict JSON")


def fedmia(line: str | Sequence[str], out: Path | None = None) -> Ran:
    """Run `fedmia LINE`.

    Args:
        line: words after `fedmia`, or a line that a shell would split.
        out: folder of `--out`, put at its end.

    Returns:
        What it did; an error that is no bad input is raised.
    """
    return call(main, line, out)


def call(
    command: Callable[[list[str]], int], line: str | Sequence[str], out: Path | None = None
) -> Ran:
    """Run a command that is no `fedmia`, as `fedmia` does.

    Args:
        command: takes the words after its name, and returns the exit code.
        line: these words, or a line that a shell would split.
        out: folder of `--out`, put at its end.

    Returns:
        What it did; an error that is no bad input is raised.
    """
    words = shlex.split(line) if isinstance(line, str) else [*line]
    words += [] if out is None else ["--out", str(out)]
    printed, errors = StringIO(), StringIO()
    with (
        pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(),
        redirect_stdout(printed), redirect_stderr(errors),
    ):  # fmt: skip
        warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)  # runpy's
        patch.setattr("sys.argv", ["fedmia", *words])
        for name, value in PLAIN.items():
            patch.setitem(os.environ, name, value)
        try:
            code = command(words)
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Ran(code, printed.getvalue(), errors.getvalue(), out)


def printing(command: str) -> Callable[[Sequence[str]], int]:
    """`fedmia COMMAND` as a function of its words: it prints to the streams of the test and returns
    the exit code."""

    def run(words: Sequence[str]) -> int:
        ran = fedmia([command, *words])
        sys.stdout.write(ran.out)
        sys.stderr.write(ran.err)
        return ran.code

    return run
