"""Scoring reads a finished run: it plays no round, trains nothing of the federation's and changes
nothing but its own archive."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

import fedmia.simulate
from fedmia.evaluation.run import score_run
from fedmia.federation.result import TrainedRounds
from fedmia.records import Evaluation
from fedmia.storage.archive import Archive
from fedmia.storage.snapshot import StateStore
from tests.small_runs import BRANCHES, simulate

ROOT = Path(__file__).resolve().parents[2]
OURS = ("fedmia", "clients", "strategies")
# What plays rounds, trains clients, notes or records; of modules any function, else its full name.
PLAYING = (
    "strategies", "clients.app", "clients.client_group", "clients.client_round",
    "clients.honest", "clients.malicious",
    *(f"fedmia.federation.{name}" for name in (
        "answered", "backends", "checkpoint", "cluster", "inline", "notetaker", "replay", "rounds",
        "train", "untrained",
    )),
    "fedmia.recording.writer", "fedmia.storage.snapshot.write_tensors", "fedmia.ssl.train.Job",
    "fedmia.rounds.notes.Notes.charge", "fedmia.rounds.notes.Notes.packed",
)  # fmt: skip
# Who would have been drawn, which an attacker of a run that was not recorded draws again.
READING = ("strategies.cohort",)


def within(name: str, parts: tuple[str, ...]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def stores() -> Iterator[type[StateStore]]:
    """Every kind of store."""
    kinds: list[type[StateStore]] = [StateStore]
    while kinds:
        yield (kind := kinds.pop())
        kinds += kind.__subclasses__()


def forbidden(names: set[str]) -> list[str]:
    """Those of some functions that scoring has no use for."""
    writing = {f"{s.__module__}.{s.__qualname__}.{n}" for s in stores() for n in ("save", "fork")}
    return sorted(
        name
        for name in names
        if name in writing or (within(name, PLAYING) and not within(name, READING))
    )


@contextmanager
def called() -> Iterator[set[str]]:
    """Full names of our functions that run meanwhile, in this thread and in those that begin."""
    names = set[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and within(module, OURS):
            names.add(f"{module}.{frame.f_code.co_qualname}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def files_of(run: TrainedRounds) -> dict[Path, bytes]:
    """Every file of a run, in its folder and in that of its images; not those of its archive."""
    images, archive = run.client_setup.image_array, run.archive.folder
    folders = {run.recording.folder.parent, Path(str(images)).parent}
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {p: p.read_bytes() for p in files if archive is None or archive not in p.parents}


def states_of(run: TrainedRounds) -> dict[tuple[str, int, str], Any]:
    """What each client keeps in each branch: the bytes of its tensors, and its memory."""
    kept = dict[tuple[str, int, str], Any]()
    for branch in ("main", "zero", "placebo", "untrained"):
        for client in range(len(run.cast.parts)):
            if (state := run.store.load(branch, client)) is not None:
                kept[branch, client, "memory"] = repr(state.memory)
                for name, tensor in state.tensors.items():
                    kept[branch, client, name] = tensor.cpu().numpy().tobytes()
    return kept


def streams() -> list[Any]:
    """States of the global streams of random numbers, but for that of torch: a layer that is built
    draws weights from it, which those of the model replace."""
    name, keys, *rest = np.random.get_state()
    return [name, keys.tolist(), rest, random.getstate()]  # type: ignore[union-attr]


class Watched:
    """A run whose scoring was watched.

    Attributes:
        called: full names of our functions that ran.
        scores: what it gave.
        again: what it gives once more, with other streams and without an archive.
        before, after: files, states and streams then.
    """

    def __init__(self, run: TrainedRounds, score: Callable[[TrainedRounds], Evaluation]) -> None:
        self.before = files_of(run), states_of(run), streams()
        with called() as self.called:
            self.scores = score(run)
        self.after = files_of(run), states_of(run), streams()
        torch.manual_seed(7)
        self.again = score(replace(run, archive=Archive(None)))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scored") / "RUN"


@pytest.fixture(scope="module")
def watched(out: Path) -> Watched:
    """The scoring of a run with all branches and an active attack, as the command does it."""
    seen = list[Watched]()

    def watch(run: TrainedRounds, *rest: Any, **more: Any) -> Evaluation:
        seen.append(Watched(run, lambda one: score_run(one, *rest, **more)))
        return seen[0].scores

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedmia.simulate, "score_run", watch)
        assert simulate(BRANCHES, out) == 0
    return seen[0]


def test_scoring__calls_nothing_that_plays_trains_or_records(watched: Watched) -> None:
    assert not forbidden(watched.called)
    active = "fedmia.evaluation.active.ActiveScorer.score_branch", "fedmia.rounds.notes.Notes.of"
    assert {*active, "fedmia.evaluation.run.score_run"} <= watched.called  # threads are watched


def test_scoring__scores_every_branch(watched: Watched) -> None:
    """So that what is watched is all of it."""
    scored = {one.name for one in watched.scores.attacks}
    assert {"similarity", "ascent"} <= scored
    assert "ascent-zero" in {pair.control.name for pair in watched.scores.pairs}
    assert {*watched.scores.controls} == {"untrained", "placebo"}
    assert {branch for branch, *_ in watched.before[1]} == {"main", "zero", "placebo"}


def test_scoring__changes_no_file_no_state_and_no_stream(watched: Watched) -> None:
    for before, after in zip(watched.before, watched.after, strict=True):
        assert before and before == after


def test_scoring__once_more_gives_the_same_scores(watched: Watched) -> None:
    """Whatever the global streams of random numbers gave before."""
    one, other = (
        [
            (label, a.name, a.queries, a.scores_members.tobytes(), a.scores_nonmembers.tobytes())
            for label, attacks in {"": scores.attacks, **scores.controls}.items()
            for a in attacks
        ]
        for scores in (watched.scores, watched.again)
    )
    assert len(one) > 6 and one == other


AUDIT = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sys.modules))
from fedmia.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
FEDERATION = ("clients", "strategies", "fedmia.federation", "fedmia.flower", "flwr", "ray")


@pytest.mark.slow(seconds=10)
def test_audit_of_a_recording__loads_nothing_that_plays_rounds(
    watched: Watched, out: Path, tmp_path: Path
) -> None:
    flags = f"audit --federation {out / 'recording'} --attacks similarity,ascent --threads 1 "
    flags += f"--attack.similarity.views 4 --device cpu --quiet --out {tmp_path / 'OUT'}"
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, *flags.split()], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = done.stdout.partition("loaded: ")[2].split()
    assert "fedmia.evaluation.active" in loaded
    assert not [name for name in loaded if within(name, FEDERATION)]
