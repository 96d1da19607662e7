"""A run that was ended at any moment goes on, and ends in the report of one that was not."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from fedmia.cli.command import DISK_FAILED
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.federation import checkpoint
from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.rounds import FederatedRun
from fedmia.runtime.progress import Display
from fedmia.simulate import main
from fedmia.storage.outfolder import locked
from strategies.failure_policy import FederationError
from tests.small_runs import (
    BRANCHES,
    SIMILARITY,
    SMALL,
    Killed,
    Report,
    after_round,
    interrupt,
    kill,
    ran,
    read,
    resume,
    simulate,
    ticking,
)

ROOT = Path(__file__).resolve().parents[2]
Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "RUN"
    assert simulate(BRANCHES, out) == 0
    assert not (out / "checkpoint").exists()
    assert [p.name for p in (out / "recording/models").iterdir()] == ["main"]
    return out


@pytest.fixture(scope="module")
def whole(finished: Path) -> Report:
    return read(finished)


@pytest.mark.slow
def test_interrupted__is_reported_on_each_time_and_goes_on(
    whole: Report, tmp_path: Path, monkeypatch: Patch
) -> None:
    """In an attacked round of the main branch, in its control's, in the placebo's; what is reported
    on is the attack with the controls that are finished."""
    out, skipped, skip = tmp_path / "RUN", list[int](), Display.skip
    monkeypatch.setattr(
        Display, "skip", lambda self, rounds: (skipped.append(rounds), skip(self, rounds))
    )
    twins = {"ascent-zero", "ascent-level-zero"}
    for branch, rounds, controls, kept in (
        ("main", 3, {"loss-before"}, {"main"}),
        ("zero", 4, {"loss-before"}, {"main", "zero"}),
        ("placebo", 4, {"loss-before", *twins}, {"main", "zero", "placebo"}),
    ):
        with monkeypatch.context() as patch:
            after_round(patch, branch, 3, interrupt)
            assert (resume(out) if out.exists() else simulate(BRANCHES, out)) == 130
        report = read(out)
        assert report["interrupted"] == len(report["rounds"]) == rounds
        assert {a["name"]: a["under_attack"] for a in report["attacks"]} == {
            "similarity": False, "ascent": True, "ascent-level": True,
        }  # fmt: skip
        assert {p["control"] for p in report["paired"]} == controls
        assert {p.name for p in (out / "recording/models").iterdir()} == kept
    assert resume(out) == 0 and read(out) == whole
    # Finished rounds of all branches: 2 beside 4 of main, in the end 3 beside these and 2 of zero.
    assert skipped == [3, 4 + 1, 4 + 2 + 3]
    files = {p.relative_to(out).as_posix() for p in out.rglob("*")}
    assert not [name for name in files if "checkpoint" in name or "partial" in name]


@pytest.mark.slow
def test_finished_attacks__are_not_scored_again(
    whole: Report, tmp_path: Path, monkeypatch: Patch
) -> None:
    scored, names = Scorer.score_attack, list[str]()

    def noted(self: Scorer, name: str, *given: Any, **more: Any) -> Any:
        names.append(name)
        return scored(self, name, *given, **more)

    monkeypatch.setattr(Scorer, "score_attack", noted)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("fedmia.simulate.publish", lambda *given: kill())
        simulate(BRANCHES, tmp_path / "RUN")
    assert "similarity" in names and "ascent" in names
    names.clear()
    assert resume(tmp_path / "RUN") == 0
    assert names == [] and read(tmp_path / "RUN") == whole


@pytest.mark.slow
def test_finished_run__prints_its_report(finished: Path, capsys: Capture) -> None:
    before = (finished / "report.json").read_bytes()
    assert main(["--resume", str(finished), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(before)
    assert (finished / "report.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "--clients 3 --ssl byol --train.optimizer adamw --train.warmup_epochs 2 "
        "--ssl.momentum_schedule cosine",
        "--clients 5 --federation.participation 0.8 --partition iid --clients-at-once 2",
    ],
    ids=["adamw", "one-pass"],
)
def test_other_training__goes_on(more: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """A momentum that is raised, killed in a round of the warm-up, then in one after it; clients
    that train in one pass."""
    flags = f"{SMALL} {SIMILARITY} --rounds 4 --checkpoint-every 0 {more}"
    whole, out = ran(flags, tmp_path / "whole"), tmp_path / "RUN"
    for last in (2, 4):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            after_round(patch, "main", last, kill)
            resume(out) if out.exists() else simulate(flags, out)
    assert resume(out) == 0 and read(out) == whole


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its second round, on images of its own."""
    folder = tmp_path_factory.mktemp("begun")
    draw_images(folder / "images.npz", 0)
    flags = f"{SMALL} --clients 2 --rounds 2 --attacks none --dataset npz:{folder / 'images.npz'}"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        after_round(patch, "main", 2, kill)
        simulate(flags, folder / "RUN")
    return folder / "RUN"


def draw_images(path: Path, seed: int) -> None:
    """300 random images of 10 classes, as an .npz."""
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 256, (300, 8, 8, 1), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(300) % 10)


def test_refused__other_images_versions_processes_and_settings(
    begun: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    def refusal(*given: str) -> str:
        assert main(["--quiet", *given]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    again = ("--resume", str(begun))
    for more in (("--clients", "5"), ("--out", str(tmp_path)), ("--config", "smoke")):
        assert f"{more[0]} cannot be given too" in refusal(*again, *more)
    assert "is no run" in refusal("--resume", str(tmp_path))
    assert "already holds another run" in refusal("--out", str(begun))
    with locked(begun, "out"):
        assert f"process {os.getpid()} on" in refusal(*again)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "__version__", "9.9.9")
        assert "this is fedmia 9.9.9" in refusal(*again)
    draw_images(begun.parent / "images.npz", 1)
    assert "no longer holds the images" in refusal(*again)


@pytest.mark.slow
@pytest.mark.parametrize(("every", "count"), [("none", 0), ("60", 8), ("0", 13)])
def test_files__are_written_once_and_those_that_an_index_names_are_there(
    every: str, count: int, whole: Report, tmp_path: Path, monkeypatch: Patch
) -> None:
    """And nothing else is, after each index. Checkpoints of the default interval are those of the
    beginnings and ends of stretches."""
    write, generations, seen = Checkpoint.write, list[int](), dict[str, tuple[int, int]]()

    def checked(self: Checkpoint, *given: Any) -> None:
        write(self, *given)
        self.wait_for_writes()
        index = json.loads((self.root / checkpoint.INDEX).read_text())
        named = {*index["files"].values(), *(name for *_, name in index["clients"]["files"])}
        there = {p.name: p.stat() for p in self.root.rglob("*.safetensors")}
        assert set(there) == named
        for name, stat in there.items():  # one that is there before stays as it is
            now = (stat.st_ino, stat.st_mtime_ns)
            assert seen.setdefault(name, now) == now
        generations.append(index["generation"])

    monkeypatch.setattr(Checkpoint, "write", checked)
    report = ran(f"{BRANCHES} --checkpoint-every {every}", tmp_path / "RUN")
    assert generations == list(range(1, count + 1))
    assert {**report, "config": None} == {**whole, "config": None}


LONG = SMALL.replace("snapshots 1", "snapshots 8") + (
    f"{SIMILARITY} --clients 3 --strategy scaffold --rounds 8 "
)


def outcome(out: Path) -> tuple[Report, dict[str, bytes]]:
    """A run's report, and its models to the bit."""
    models = (out / "recording/models/main").iterdir()
    return read(out), {path.name: path.read_bytes() for path in models}


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, dict[str, bytes]]:
    """What eight rounds end in that were not interrupted."""
    out = tmp_path_factory.mktemp("eight") / "RUN"
    assert simulate(LONG, out) == 0
    assert len(outcome(out)[1]) == 9
    return outcome(out)


@pytest.fixture
def skipped(monkeypatch: Patch) -> list[int]:
    """Finished rounds that each resumed run does not repeat."""
    rounds, skip = list[int](), Display.skip
    monkeypatch.setattr(Display, "skip", lambda self, done: (rounds.append(done), skip(self, done)))
    return rounds


@pytest.mark.parametrize(
    ("every", "heads"),
    [("60", [0, 3, 6, 8]), ("none", []), ("0", [*range(9)]), ("26", [0, 2, 4, 6, 8])],
)
def test_every__so_many_seconds_and_where_stretches_end(
    every: str, heads: list[int], tmp_path: Path, monkeypatch: Patch
) -> None:
    """Of rounds of 25 seconds."""
    write, rounds = Checkpoint.write, list[int]()

    def noted(self: Checkpoint, about: Any, parts: Any, *more: Any) -> None:
        rounds.append(parts["head"][1]["round"])
        write(self, about, parts, *more)
        self.wait_for_writes()

    ticking(monkeypatch, 25)
    monkeypatch.setattr(Checkpoint, "write", noted)
    assert simulate(f"{LONG} --checkpoint-every {every}", tmp_path / "RUN") == 0
    assert rounds == heads


def test_kill__costs_the_rounds_since_the_last_checkpoint(
    eight: Any, skipped: list[int], tmp_path: Path, monkeypatch: Patch
) -> None:
    """That of round 3, in rounds of 25 seconds."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        ticking(patch, 25)
        after_round(patch, "main", 5, kill)
        simulate(LONG, tmp_path / "RUN")
    assert resume(tmp_path / "RUN") == 0 and outcome(tmp_path / "RUN") == eight
    assert skipped == [3]


def fail(error: Exception) -> None:
    raise error


def ended(flags: str, out: Path, place: str, act: Callable[[], object], patch: Patch) -> int:
    """The exit code of a run to which this happens in its sixth round: after two of three updates
    (`_note_update`), or when it is recorded (`_note`)."""
    plain = getattr(FederatedRun, place)

    def noted(self: FederatedRun, *of: Any) -> Any:
        at = (of[2].round, of[2].client) if place == "_note_update" else (of[1], 1)
        if at == (6, 1):
            act()
        return plain(self, *of)

    patch.setattr(FederatedRun, place, noted)
    return simulate(flags, out)


def content(root: Path) -> dict[str, Any]:
    """What a checkpoint says, and the bytes of its files, whatever their names."""
    index = json.loads((root / checkpoint.INDEX).read_text())
    clients, files = index.pop("clients")["files"], index.pop("files")
    parts = {part: (root / name).read_bytes() for part, name in files.items()}
    states = {(b, c): (root / "clients" / name).read_bytes() for b, c, name in clients}
    return {**index, "generation": None, "seconds": None, "parts": parts, "states": states}


@pytest.mark.parametrize(
    ("place", "act", "code"),
    [
        ("_note_update", interrupt, 130),
        ("_note_update", lambda: fail(FederationError("round 6: a client failed")), 1),
        ("_note_update", lambda: fail(OSError(errno.ENOSPC, "elsewhere")), DISK_FAILED),
        ("_note", lambda: fail(FederationError("round 6: training diverged")), 1),
    ],
    ids=["interrupt", "failure", "disk", "diverged"],
)
def test_ended_within_a_round__goes_on_from_the_last_finished_one(
    place: str, act: Callable[[], object], code: int, eight: Any, skipped: list[int],
    tmp_path: Path, monkeypatch: Patch,
) -> None:  # fmt: skip
    """The fifth, 50 seconds after the last checkpoint. What is written then is to the byte what a
    run writes that has a checkpoint after each round."""
    with monkeypatch.context() as patch:
        ticking(patch, 25)
        assert ended(LONG, tmp_path / "RUN", place, act, patch) == code
    with monkeypatch.context() as patch, pytest.raises(Killed):
        ended(f"{LONG} --checkpoint-every 0", tmp_path / "TWIN", place, kill, patch)
    one, twin = (content(tmp_path / name / "checkpoint") for name in ("RUN", "TWIN"))
    assert one == twin and len(one["states"]) == 3 and len(one["rounds"]["list"]) == 5
    assert resume(tmp_path / "RUN") == 0 and outcome(tmp_path / "RUN") == eight
    assert skipped == [5]


@pytest.mark.parametrize(("room", "rounds"), [(1 << 20, 5), (1, 3)])
def test_interrupted_after_a_round__repeats_none(
    room: int, rounds: int, eight: Any, skipped: list[int], tmp_path: Path, monkeypatch: Patch
) -> None:
    """With a checkpoint of round 3 before; from it, where states of clients do not fit twice."""
    plain = FederatedRun.run

    def run(self: FederatedRun, grid: Any) -> None:
        self.store.room = room
        plain(self, grid)

    with monkeypatch.context() as patch:
        ticking(patch, 25)
        patch.setattr(FederatedRun, "run", run)
        after_round(patch, "main", 5, interrupt)
        assert simulate(LONG, tmp_path / "RUN") == 130
    assert resume(tmp_path / "RUN") == 0 and outcome(tmp_path / "RUN") == eight
    assert skipped == [rounds]


@pytest.mark.slow
def test_kill_9__within_the_default_interval(skipped: list[int], tmp_path: Path) -> None:
    """In a process of its own, as its third round of thirty is finished."""
    flags = LONG.replace("rounds 8", "rounds 30").replace("snapshots 8", "snapshots 30")
    whole, out = ran(flags, tmp_path / "whole"), tmp_path / "RUN"
    run = subprocess.Popen(
        [sys.executable, "-m", "fedmia.simulate", *shlex.split(flags), "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (out / "recording/models/main/0003.safetensors").is_file():
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert resume(out) == 0 and read(out) == whole
    assert skipped == [0]


@pytest.mark.slow
def test_slow_disk__rounds_go_on_and_a_kill_costs_those_since_its_last_checkpoint(
    whole: Report, tmp_path: Path, monkeypatch: Patch
) -> None:
    """A checkpoint is on the disk only when somebody waits for it."""
    out, write, wait, written = tmp_path / "RUN", Checkpoint._write, Checkpoint.wait_for_writes, 0
    awaited = Event()

    def slow(self: Checkpoint, *arguments: Any) -> None:
        nonlocal written
        awaited.wait()
        awaited.clear()
        write(self, *arguments)
        written += 1

    def waits(self: Checkpoint) -> None:
        if self._running is not None and not self._running.done():
            awaited.set()
        wait(self)

    with monkeypatch.context() as patch:
        ticking(patch, 100)  # one is due after each round
        patch.setattr(Checkpoint, "_write", slow)
        patch.setattr(Checkpoint, "wait_for_writes", waits)
        after_round(patch, "placebo", 3, kill)
        with pytest.raises(Killed):
            simulate(BRANCHES, out)
    # Main at 0, 2 and 4, zero at 2 and 4, placebo at 0 and 2: no round within a stretch.
    assert written == 7
    assert resume(out) == 0 and read(out) == whole


@pytest.mark.slow(seconds=25)
def test_kill_9__in_a_process_of_its_own_on_ray(
    one_ray: None, whole: Report, tmp_path: Path
) -> None:
    """After four checkpoints of the 13, wherever it is then; at last the report of the run that was
    left alone, on the inline backend."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    out = tmp_path / "RUN"
    index = out / "checkpoint" / checkpoint.INDEX
    command, flags = [sys.executable, "-m", "fedmia.simulate"], f"{BRANCHES} --backend ray "
    flags += "--checkpoint-every 0"
    run = subprocess.Popen(
        [*command, *shlex.split(flags), "--out", str(out)],
        env=environment, start_new_session=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while not index.is_file() or json.loads(index.read_text())["generation"] <= 4:
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert resume(out) == 0
    report = read(out)
    assert report["config"]["machine"]["backend"] == "ray"
    assert {**report, "config": None} == {**whole, "config": None}
