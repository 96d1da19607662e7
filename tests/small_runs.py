"""Runs of a second: their flags, their reports without pictures, and what befalls their rounds."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedmia.federation import checkpoint
from tests import watched
from tests.commands import fedmia
from tests.pictures import unpainted

Report = dict[str, Any]
SMALL = (
    "--train.local_epochs 1 --model.width 4 --split.members 32 --split.nonmembers 60 "
    "--split.known 8 --split.test 20 --device cpu --federation.snapshots 1 --quiet "
)
SIMILARITY = "--attacks similarity --attack.similarity.views 4 "
WATCHED = "--strategy tests.watched:Mean "  # FedAvg, in whose rounds something may happen
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
    """The exit code of `fedmia simulate`, which prints as it would; its pictures are empty files.
    After Ctrl-C its process would end here and now."""
    with pytest.MonkeyPatch.context() as patch, unpainted():
        patch.setattr(os, "_exit", sys.exit)
        ran = fedmia(["simulate", *arguments])
    sys.stdout.write(ran.out)
    sys.stderr.write(ran.err)
    return ran.code


def simulate(flags: str, out: Path) -> int:
    """The exit code of a run into a folder."""
    return call_main([*shlex.split(flags), "--out", str(out)])


def resume(out: Path) -> int:
    """The exit code of a run that is gone on with."""
    return call_main(["--resume", str(out), "--trust-plugins", "--quiet"])


def read(out: Path) -> Report:
    """A run's report but for its timing."""
    report: Report = json.loads((out / "report.json").read_text())
    return {**report, "timing": None}


def ran(flags: str, out: Path, code: int = 0) -> Report:
    """The report of a run that ends with this exit code."""
    assert simulate(flags, out) == code
    return read(out)


def in_round(branch: str, number: int, act: Callable[[], object]) -> None:
    """`act()` is called in that round of that branch, when all updates are in and the round is not
    yet over; of the next run, whose strategy is one of `tests.watched`."""
    watched.watch().acts[branch, number] = act


def not_repeated() -> list[int]:
    """Of each run since `in_round` or `watch`: the round of `main` that it began with."""
    phases = [phase.first for phase in watched.SEEN.phases if phase.branch == "main"]
    return [first for at, first in enumerate(phases) if not at or first != phases[at - 1]]


def ticking(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """By the clock of checkpoints each round takes so many seconds, and nothing else takes any."""
    clock = SimpleNamespace(monotonic=lambda: seconds * watched.SEEN.ended)
    patch.setattr(checkpoint, "time", clock)
