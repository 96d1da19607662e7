"""Runs of a second: their flags, their reports without pictures, and what befalls their rounds."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedmia.federation import checkpoint
from fedmia.report.figures import draw
from fedmia.runtime.progress import Display
from fedmia.simulate import main

Report = dict[str, Any]
SMALL = (
    "--train.local_epochs 1 --model.width 4 --split.members 32 --split.nonmembers 60 "
    "--split.known 8 --split.test 20 --device cpu --federation.snapshots 1 --quiet "
)
SIMILARITY = "--attacks similarity --attack.similarity.views 4 "
# All branches: main, its attacked rounds 3 and 4 without the attack, and the placebo.
BRANCHES = SMALL + (
    "--clients 3 --rounds 4 --attack-rounds 2 --attacker active --strategy scaffold "
    "--attacks similarity,ascent --attack.similarity.views 4 --attack.ascent.pairs 1 "
)


class Killed(BaseException):
    """Nothing that anybody catches."""


def kill() -> None:
    raise Killed


def interrupt() -> None:
    """Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def call_main(arguments: Sequence[str]) -> int:
    """The exit code of `fedmia simulate`; no pictures are drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "draw_all", lambda scores, report: {})
        return main(arguments)


def simulate(flags: str, out: Path) -> int:
    """The exit code of a run into a folder."""
    return call_main([*shlex.split(flags), "--out", str(out)])


def resume(out: Path) -> int:
    """The exit code of a run that is gone on with."""
    return call_main(["--resume", str(out), "--quiet"])


def read(out: Path) -> Report:
    """A run's report but for its timing."""
    report: Report = json.loads((out / "report.json").read_text())
    return {**report, "timing": None}


def ran(flags: str, out: Path, code: int = 0) -> Report:
    """The report of a run that ends with this exit code."""
    assert simulate(flags, out) == code
    return read(out)


def after_round(
    patch: pytest.MonkeyPatch, branch: str, number: int, act: Callable[[], object]
) -> None:
    """`act()` is called when that round of that branch is done, before its checkpoint."""
    shown = Display.round

    def round(self: Display, now: str, done: int, *rest: Any) -> None:
        shown(self, now, done, *rest)
        if (now, done) == (branch, number):
            act()

    patch.setattr(Display, "round", round)


def ticking(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """By the clock of checkpoints each round takes so many seconds, and nothing else takes any."""
    shown, now = Display.round, [0.0]

    def round(self: Display, *of: Any) -> None:
        now[0] += seconds
        shown(self, *of)

    patch.setattr(Display, "round", round)
    patch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: now[0]))
