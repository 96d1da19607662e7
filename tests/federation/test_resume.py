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
from typing import Any

import numpy as np
import pytest

from fedmia.cli.command import DISK_FAILED
from fedmia.federation import checkpoint
from tests import watched
from tests.commands import fedmia
from tests.small_runs import (
    BRANCHES,
    SIMILARITY,
    SMALL,
    WATCHED,
    Killed,
    Report,
    in_round,
    interrupt,
    kill,
    not_repeated,
    ran,
    read,
    resume,
    simulate,
    ticking,
)
from tests.storage.disk import failing

ROOT = Path(__file__).resolve().parents[2]
Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
WHOLE = BRANCHES.replace("--strategy scaffold", "--strategy tests.watched:Controls")
LONG = SMALL.replace("snapshots 1", "snapshots 8") + (
    "--attacks none --clients 3 --strategy tests.watched:Controls --rounds 8 "
    "--defense dpsgd --defended-clients 1 --federation.participation 0.6 "
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the uninterrupted run, with all branches."""
    out = tmp_path_factory.mktemp("whole") / "RUN"
    assert simulate(WHOLE, out) == 0
    assert not (out / "checkpoint").exists()
    assert [p.name for p in (out / "recording/models").iterdir()] == ["main"]
    return out


@pytest.mark.slow
def test_interrupted__is_reported_on_each_time_and_goes_on(whole: Path, tmp_path: Path) -> None:
    """In an attacked round of the main branch, in its control's, in the placebo's; what is reported
    on is the attack with the controls that are finished."""
    out = tmp_path / "RUN"
    twins = {"ascent-zero", "ascent-level-zero"}
    for branch, number, rounds, controls, kept in (
        ("main", 4, 3, {"loss-before"}, {"main"}),
        ("zero", 4, 4, {"loss-before"}, {"main", "zero"}),
        ("placebo", 4, 4, {"loss-before", *twins}, {"main", "zero", "placebo"}),
    ):
        in_round(branch, number, interrupt)
        assert (resume(out) if out.exists() else simulate(WHOLE, out)) == 130
        report = read(out)
        assert report["interrupted"] == len(report["rounds"]) == rounds
        assert {a["name"]: a["under_attack"] for a in report["attacks"]} == {
            "similarity": False, "ascent": True, "ascent-level": True,
        }  # fmt: skip
        assert {p["control"] for p in report["paired"]} == controls
        assert {p.name for p in (out / "recording/models").iterdir()} == kept
    seen = watched.watch()
    assert resume(out) == 0 and read(out) == read(whole)
    assert [(p.branch, p.first, p.last) for p in seen.phases if p.branch != "untrained"] == [
        ("placebo", 3, 4)
    ]
    files = {p.relative_to(out).as_posix() for p in out.rglob("*")}
    assert not [name for name in files if "checkpoint" in name or "partial" in name]


@pytest.mark.slow
def test_finished_attacks__are_not_scored_again(tmp_path: Path, monkeypatch: Patch) -> None:
    """The report cannot be written; there is room for it later."""
    out, seen = tmp_path / "RUN", watched.watch()
    line = f"{SMALL}--clients 2 --rounds 2 --attacker passive --attacks tests.watched:Weighs"
    with failing(out, monkeypatch, "report.json"):
        assert simulate(line, out) == DISK_FAILED
    assert seen.scored
    seen = watched.watch()
    assert resume(out) == 0 and not seen.scored
    assert [row["name"] for row in read(out)["attacks"]] == ["tests.watched:Weighs"]


@pytest.mark.slow
def test_finished_run__prints_its_report(whole: Path) -> None:
    before = (whole / "report.json").read_bytes()
    done = fedmia(f"simulate --resume {whole} --trust-plugins --json")
    assert done.code == 0 and json.loads(done.out) == json.loads(before)
    assert (whole / "report.json").read_bytes() == before


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
def test_other_training__goes_on(more: str, tmp_path: Path) -> None:
    """A momentum that is raised, killed in a round of the warm-up, then in one after it; clients
    that train in one pass."""
    flags = f"{SMALL}{WATCHED}{SIMILARITY} --rounds 4 --checkpoint-every 0 {more}"
    whole, out = ran(flags, tmp_path / "whole"), tmp_path / "RUN"
    for last in (2, 4):
        in_round("main", last, kill)
        with pytest.raises(Killed):
            resume(out) if out.exists() else simulate(flags, out)
    assert resume(out) == 0 and read(out) == whole


def draw_images(path: Path, seed: int) -> None:
    """300 random images of 10 classes, as an .npz."""
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 256, (300, 8, 8, 1), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(300) % 10)


def test_refused__other_images_versions_processes_and_settings(tmp_path: Path) -> None:
    """Of a run that was killed in its second round, on images of its own."""
    out, images = tmp_path / "RUN", tmp_path / "images.npz"

    def refusal(*given: str) -> str:
        done = fedmia(["simulate", "--quiet", *given])
        assert done.code == 2 and done.err.count("\n") == 1
        return done.err

    again = ("--resume", str(out), "--trust-plugins")

    def ask_and_die() -> None:
        assert f"process {os.getpid()} on" in refusal(*again)
        kill()

    draw_images(images, 0)
    in_round("main", 2, ask_and_die)
    with pytest.raises(Killed):
        flags = f"{SMALL}{WATCHED}--clients 2 --rounds 2 --attacks none --dataset npz:{images}"
        simulate(flags, out)
    for more in (("--clients", "5"), ("--out", str(tmp_path)), ("--config", "smoke")):
        assert f"{more[0]} cannot be given too" in refusal(*again, *more)
    assert "is no run" in refusal("--resume", str(tmp_path))
    assert "already holds another run" in refusal("--out", str(out))
    draw_images(images, 1)
    assert "no longer holds the images" in refusal(*again)
    index = out / "checkpoint" / checkpoint.INDEX
    told = json.loads(index.read_text())
    told["versions"]["fedmia"] = "9.9.9"
    index.write_text(json.dumps(told))
    assert "was written by fedmia 9.9.9" in refusal(*again)


def outcome(out: Path) -> tuple[Report, dict[str, bytes]]:
    """A run's report, and its models to the bit."""
    models = (out / "recording/models/main").iterdir()
    return {**read(out), "config": None}, {path.name: path.read_bytes() for path in models}


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, dict[str, bytes]]:
    """What eight rounds end in that were not interrupted."""
    out = tmp_path_factory.mktemp("eight") / "RUN"
    assert simulate(LONG, out) == 0
    assert len(outcome(out)[1]) == 9
    return outcome(out)


@pytest.mark.parametrize(("every", "kept"), [("60", 3), ("none", 0), ("0", 5)])
def test_kill__costs_the_rounds_since_the_last_checkpoint(
    every: str, kept: int, eight: Any, tmp_path: Path, monkeypatch: Patch
) -> None:
    """In the sixth round, where a round takes 25 seconds."""
    in_round("main", 6, kill)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        ticking(patch, 25)
        simulate(f"{LONG} --checkpoint-every {every}", tmp_path / "RUN")
    assert resume(tmp_path / "RUN") == 0 and outcome(tmp_path / "RUN") == eight
    assert not_repeated() == [0, kept] if kept else not_repeated() == [0]


def fail(error: Exception) -> None:
    raise error


def content(root: Path) -> dict[str, Any]:
    """What a checkpoint says, and the bytes of its files, whatever their names."""
    index = json.loads((root / checkpoint.INDEX).read_text())
    clients, files = index.pop("clients")["files"], index.pop("files")
    parts = {part: (root / name).read_bytes() for part, name in files.items()}
    states = {(b, c): (root / "clients" / name).read_bytes() for b, c, name in clients}
    return {**index, "generation": None, "seconds": None, "parts": parts, "states": states}


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (interrupt, 130),
        (lambda: fail(OSError(errno.ENOSPC, "elsewhere")), DISK_FAILED),
    ],
    ids=["interrupt", "disk"],
)
def test_ended_within_a_round__goes_on_from_the_last_finished_one(
    act: Callable[[], object], code: int, eight: Any, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The fifth, 50 seconds after the last checkpoint, though all updates of the sixth are in. What
    is written then is to the byte what a run writes that has a checkpoint after each round."""
    in_round("main", 6, act)
    with monkeypatch.context() as patch:
        ticking(patch, 25)
        assert simulate(LONG, tmp_path / "RUN") == code
    if code == 130:
        seen = watched.SEEN
        seen.acts["main", 6] = kill
        with pytest.raises(Killed):
            simulate(f"{LONG} --checkpoint-every 0", tmp_path / "TWIN")
        one, twin = (content(tmp_path / name / "checkpoint") for name in ("RUN", "TWIN"))
        assert one == twin and len(one["states"]) == 3 and len(one["rounds"]["list"]) == 5
    seen = watched.watch()
    assert resume(tmp_path / "RUN") == 0 and outcome(tmp_path / "RUN") == eight
    assert not_repeated() == [5]


@pytest.mark.slow
def test_kill_9__within_the_default_interval(tmp_path: Path) -> None:
    """In a process of its own, as its third round of thirty is finished."""
    flags = LONG.replace("rounds 8", "rounds 30").replace("snapshots 8", "snapshots 30")
    whole, out = ran(flags, tmp_path / "whole"), tmp_path / "RUN"
    killed(flags, out, lambda: (out / "recording/models/main/0003.safetensors").is_file())
    watched.watch()
    assert resume(out) == 0 and read(out) == whole
    assert not_repeated() == [0]


def killed(flags: str, out: Path, due: Callable[[], bool]) -> None:
    """A run in a process of its own, which is killed once that is so."""
    run = subprocess.Popen(
        [sys.executable, "-m", "fedmia.simulate", *shlex.split(flags), "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while not due():
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


@pytest.mark.slow(seconds=25)
def test_kill_9__in_a_process_of_its_own_on_ray(one_ray: None, whole: Path, tmp_path: Path) -> None:
    """After four checkpoints of the 13, wherever it is then; at last the report of the run that was
    left alone, on the inline backend."""
    out = tmp_path / "RUN"
    index = out / "checkpoint" / checkpoint.INDEX
    killed(
        f"{WHOLE} --backend ray --checkpoint-every 0", out,
        lambda: index.is_file() and json.loads(index.read_text())["generation"] > 4,
    )  # fmt: skip
    assert resume(out) == 0
    report = read(out)
    assert report["config"]["machine"]["backend"] == "ray"
    assert {**report, "config": None} == {**read(whole), "config": None}
