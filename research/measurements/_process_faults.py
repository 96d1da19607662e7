"""What befalls a process, its disk and its machine, in rounds, scoring and writing; `--resume` then
goes on."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pkgutil
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from _ending import Report, read, run  # beside this script

from fedmia.cli.command import DISK_FAILED
from tests.storage import disk

ACTIVE = (
    "--config smoke --clients 4 --attacker active --strategy scaffold --model.width 4 "
    "--split.members 32 --split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --quiet "
    "--checkpoint-every 0 "
)
CUTS = 23  # moments of each fate
# What is killed, the function in which, and at which of its calls.
KILLED = (
    ("in scoring", "fedmia.evaluation.steps.scorer.Scorer.score_attack", 1),
    ("before the report", "fedmia.simulate.publish", 0),
    ("in its figures", "fedmia.report.figures.draw.draw_all", 0),
    ("in a checkpoint", "fedmia.federation.checkpoint.Checkpoint.write", 4),
    ("at the fork", "fedmia.federation.rounds.FederatedRun._prepare_replay", 0),
    ("as it reads a model", "fedmia.federation.notetaker.NoteTaker._read", 3),
    ("as it keeps scores", "fedmia.storage.archive.Archive.save", 2),
    ("in the last branch", "fedmia.federation.rounds.FederatedRun._note", 4),
)
DISKS = (("full", errno.ENOSPC), ("read-only", errno.EROFS), ("broken", errno.EIO))
# What the disk refuses, part of its path, and how many calls go well before.
REFUSED = (
    ("a client's state", "checkpoint/clients", 3),
    ("a checkpoint's index", "index.json", 4),
    ("a model", "recording/models", 2),
    ("scores", "scores", 1),
    ("the report", "report.json", 0),
)


class Killed(BaseException):
    """Nothing that anybody catches."""


def process_faults(folder: Path) -> list[dict[str, Any]]:
    """Kills of the process, then disks that fail; each is gone on with."""
    clean, rows = clean_report(folder / "CLEAN"), []
    for number, (place, target, at) in enumerate(KILLED):
        with killed(target, at):
            rows.append(one(folder / f"killed-{number}", f"killed {place}", clean))
    for number, ((state, code), refused) in enumerate(itertools.product(DISKS, REFUSED)):
        what, name, after = refused
        out = folder / f"disk-{number}"
        with pytest.MonkeyPatch.context() as monkeypatch:
            failing = disk.failing(out, monkeypatch, name, after, code)
            rows.append(one(out, f"disk {state}: {what}", clean, failing))
    return rows


def clean_report(out: Path) -> Report:
    """Of the run that nothing befell."""
    code, errors, _ = run([*shlex.split(ACTIVE), "--out", str(out)])
    report = read(out)
    if code or report is None:
        raise RuntimeError(errors)
    return report


def one(
    out: Path, kind: str, clean: Report,
    fault: contextlib.AbstractContextManager[None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A run that is killed or whose disk fails, and what is wrong with how it went on.

    Args:
        out: folder of the run.
        kind: of the fault.
        clean: report of the run that nothing befell.
        fault: holds while the run goes, and not as it goes on; None: the caller has it.
    """
    began, wrong = time.perf_counter(), list[str]()
    with fault or contextlib.nullcontext():
        try:
            code, errors, _ = run([*shlex.split(ACTIVE), "--out", str(out)])
            if code == 0:
                wrong.append("the fault did not happen")
            elif code != DISK_FAILED or errors.count("\n") != 1:
                wrong.append(f"exit code {code}: {errors}")
        except Killed:
            code = -9
            for thread in threading.enumerate():  # a kill would have ended what scores beside it
                if thread.name.startswith("score"):
                    thread.join()
    again, errors, _ = run(["--resume", str(out), "--quiet"])
    if again or read(out) != clean:
        wrong.append(f"resumed: exit code {again}, or another report: {errors}")
    return row(kind, "scoring or writing", code, began, wrong)


def row(kind: str, when: str, code: int, began: float, wrong: list[str]) -> dict[str, Any]:
    """What became of a fault, for the table."""
    result = {
        "backend": "inline", "kind": kind, "when": when, "policy": "--resume", "code": code,
        "seconds": round(time.perf_counter() - began, 1), "wrong": wrong,
    }  # fmt: skip
    print(result, flush=True)
    return result


@contextlib.contextmanager
def killed(target: str, at: int) -> Iterator[None]:
    """Raise what nobody catches at the call number `at` of a function, once."""
    path, _, name = target.rpartition(".")
    owner, calls = pkgutil.resolve_name(path), itertools.count()
    plain: Callable[..., Any] = getattr(owner, name)

    def fails(*arguments: Any, **more: Any) -> Any:
        if next(calls) == at:
            raise Killed
        return plain(*arguments, **more)

    with patch.object(owner, name, fails):
        yield


def power_cuts(folder: Path) -> list[dict[str, Any]]:
    """Cuts of the power at moments of a run, by what of it had been forced to the disk.

    The calls that write are recorded once; each cut leaves what a disk would, with names that were
    not forced lost, kept, or only deletions kept.
    """
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        disk.recorded(folder / "whole", monkeypatch) as recorded,
    ):
        clean = clean_report(folder / "whole" / "RUN")
    rows = []
    for fate, states in recorded.states.items():
        for number in range(CUTS):
            began, wrong = time.perf_counter(), list[str]()
            tree = states[round(number * (len(states) - 1) / (CUTS - 1))]
            out = disk.restore(tree, folder / f"{fate}-{number}") / "RUN"
            begin = [*shlex.split(ACTIVE), "--out", str(out)]
            begun = bool(tree.get(os.path.join("RUN", "config.yaml")))
            code, errors, _ = run(["--resume", str(out), "--quiet"] if begun else begin)
            if code or read(out) != clean:
                wrong.append(f"exit code {code}, or another report: {errors}")
            when = f"{len(states)} moments, unforced names {fate}"
            rows.append(row("power cut", when, code, began, wrong))
    return rows
