"""Ctrl-C: finished rounds are kept and reported on with exit code 130; the second stops at once."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedmia.evaluation.federated.snapshots import Evaluation
from fedmia.federation.rounds import FederatedRun
from fedmia.report.figures import draw
from fedmia.simulate import main
from fedmia.ssl.train import Job
from fedmia.storage.snapshot import SnapshotStore

ROOT = Path(__file__).resolve().parents[1]
TINY = (
    "--clients 4 --train.local_epochs 1 --model.width 4 --split.members 32 --split.nonmembers 60 "
    "--split.known 8 --split.test 20 --device cpu --quiet "
)
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def interrupt_after(branch: str, round: int, monkeypatch: Patch, *, times: int = 1) -> None:
    """Ctrl-C when `round` of `branch` is done, while the next one may begin."""
    noted = FederatedRun._note

    def note(self: FederatedRun, now: str, number: int, *rest: Any) -> None:
        noted(self, now, number, *rest)
        if (now, number) == (branch, round):
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)  # two that arrive together are one

    monkeypatch.setattr(FederatedRun, "_note", note)


def interrupted(flags: str, out: Path, monkeypatch: Patch) -> dict[str, Any]:
    """The report of a run into `out` that ends with exit code 130."""
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})
    before = signal.getsignal(signal.SIGINT)
    assert main([*shlex.split(TINY + flags), "--out", str(out)]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    report_json: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report_json


@pytest.mark.slow
@pytest.mark.parametrize("pretrain", ["none", "pooled --pretrain-epochs 2"])
def test_in_clean_rounds__the_last_finished_round_is_scored(
    pretrain: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    interrupt_after("main", 5, monkeypatch)
    flags = f"--pretrain {pretrain} --rounds 42 --attacks similarity "
    report = interrupted(flags + "--federation.snapshots 1", tmp_path / "RUN", monkeypatch)
    assert report["interrupted"] == 5
    assert "; the run was interrupted after round 5." in report["verdict"]
    assert [r["round"] for r in report["rounds"]] == [1, 2, 3, 4, 5]
    assert [a["name"] for a in report["attacks"]] == ["similarity"]
    out, err = capsys.readouterr()
    assert out == report["verdict"] + "\n" and "fedmia: interrupted" in err
    assert f"fedmia: --resume {tmp_path / 'RUN'} goes on with this run" in err.splitlines()
    # What the attacks were scored on is the model of that round, not the untrained one.
    assert SnapshotStore(tmp_path / "RUN" / "snapshots").rounds("main") == [0, 5]
    untrained = report["controls"]["untrained"][0]
    assert report["attacks"][0]["auc"] != untrained["auc"]


ACTIVE = (
    "--attacker active --attacks similarity,ascent --rounds 5 --attack-rounds 3 "
    "--federation.snapshots 2 --attack.similarity.views 4 --attack.ascent.pairs 1 "
)


@pytest.mark.slow
def test_under_attack__the_attack_is_reported_without_its_control(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    interrupt_after("main", 4, monkeypatch)
    report = interrupted(ACTIVE, tmp_path / "RUN", monkeypatch)
    assert report["interrupted"] == 4 and len(report["rounds"]) == 4
    attacks = {a["name"]: a for a in report["attacks"]}
    assert attacks["ascent"]["under_attack"] and not attacks["similarity"]["under_attack"]
    assert {p["control"] for p in report["paired"]} == {"loss-before"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("branch", "twins"), [("zero", set()), ("placebo", {"ascent-zero", "ascent-level-zero"})]
)
def test_in_a_control_branch__main_is_reported_whole(
    branch: str, twins: set[str], tmp_path: Path, monkeypatch: Patch
) -> None:
    interrupt_after(branch, 4, monkeypatch)
    report = interrupted(ACTIVE, tmp_path / "RUN", monkeypatch)
    assert report["interrupted"] == 5 and [r["round"] for r in report["rounds"]] == [1, 2, 3, 4, 5]
    assert {p["control"] for p in report["paired"]} == {*twins, "loss-before"}
    # The others stay as far as they are, for --resume.
    kept = {p.name for p in (tmp_path / "RUN" / "snapshots").iterdir()}
    assert kept == {"main", "zero"} | ({"placebo"} if branch == "placebo" else set())


def test_in_a_servers_training__nothing_is_finished(tmp_path: Path, monkeypatch: Patch) -> None:
    """The model that it was about to train is the untrained one."""
    plain = Job.run

    def run(self: Job) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return plain(self)

    monkeypatch.setattr(Job, "run", run)
    report = interrupted("--pretrain pooled --attacks none", tmp_path / "RUN", monkeypatch)
    assert report["interrupted"] == 0 and report["rounds"] == []
    kept = SnapshotStore(tmp_path / "RUN" / "snapshots")
    one, other = kept.load("main", 0).state, kept.untrained().state
    assert all((t == other[n]).all() for n, t in one.items())


def test_before_the_first_round__says_that_nothing_is_finished(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    plain = FederatedRun.run

    def run(self: FederatedRun, grid: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        plain(self, grid)

    monkeypatch.setattr(FederatedRun, "run", run)
    report = interrupted("--rounds 3 --attacks none", tmp_path / "R", monkeypatch)
    assert report["interrupted"] == 0 and report["rounds"] == []
    assert report["verdict_code"] == "no-verdict"
    assert report["verdict"].startswith(
        "No verdict: the run was interrupted before its first round was finished"
    )


def test_twice__stops_at_once_without_a_report(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    interrupt_after("main", 2, monkeypatch, times=2)
    scored = []
    monkeypatch.setattr(Evaluation, "__init__", lambda self, *given: scored.append(self))
    flags = "--rounds 4 --attacks similarity "
    assert main([*shlex.split(TINY + flags), "--out", str(tmp_path / "RUN")]) == 130
    assert "Traceback" not in capsys.readouterr().err
    assert not scored and not (tmp_path / "RUN" / "report.json").exists()


def started(flags: str, out: Path) -> subprocess.Popen[str]:
    """A run in its own process, after its first rounds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedmia.simulate", *shlex.split(TINY + flags), "--out", str(out)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    while not (out / "snapshots" / "main" / "round-0003.safetensors").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.stderr
        time.sleep(0.05)
    return process


LONG = "--rounds 5000 --federation.snapshots 5000 --attacks similarity "


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("backend", ["inline", "ray"])
def test_process__reports_on_the_finished_rounds(backend: str, tmp_path: Path) -> None:
    with started(LONG + f"--backend {backend}", tmp_path / "RUN") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    report = json.loads((tmp_path / "RUN" / "report.json").read_text())
    done = report["interrupted"]
    assert done >= 3 and [r["round"] for r in report["rounds"]] == list(range(1, done + 1))
    assert f"interrupted after round {done}" in report["verdict"]
    assert out == report["verdict"] + "\n" and "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["inline", "ray"])
def test_process__the_second_ends_it_at_once(backend: str, tmp_path: Path) -> None:
    with started(LONG + f"--backend {backend}", tmp_path / "RUN") as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        for line in process.stderr:  # two sent together are one
            if "interrupted" in line:
                break
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert time.monotonic() - began < 15 and "Traceback" not in err
    assert not (tmp_path / "RUN" / "report.json").exists()
