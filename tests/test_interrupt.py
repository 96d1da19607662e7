"""Ctrl-C: finished rounds are kept and reported on with exit code 130; the second stops at once.

Interruptions under attack and in the control branches are in tests/federation/test_resume.py.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedmia.recording import Recording
from fedmia.ssl.moco import MoCo
from tests import watched
from tests.small_runs import SIMILARITY, SMALL, WATCHED, in_round, interrupt, ran, simulate
from tests.watched import same

ROOT = Path(__file__).resolve().parents[1]
TINY = SMALL + "--clients 4 "
Capture = pytest.CaptureFixture[str]


@pytest.mark.slow
@pytest.mark.parametrize("pretrain", ["none", "pooled --pretrain-epochs 2"])
def test_in_clean_rounds__the_last_finished_round_is_scored(
    pretrain: str, tmp_path: Path, capsys: Capture
) -> None:
    in_round("main", 6, interrupt)
    before = signal.getsignal(signal.SIGINT)
    flags = f"{TINY}{WATCHED}{SIMILARITY} --pretrain {pretrain} --rounds 42"
    report = ran(flags, tmp_path / "RUN", 130)
    assert signal.getsignal(signal.SIGINT) is before
    assert report["interrupted"] == 5
    assert "; the run was interrupted after round 5." in report["verdict"]
    assert [r["round"] for r in report["rounds"]] == [1, 2, 3, 4, 5]
    assert [a["name"] for a in report["attacks"]] == ["similarity"]
    out, err = capsys.readouterr()
    assert out == report["verdict"] + "\n" and "fedmia: interrupted" in err
    again = f"fedmia: --resume {tmp_path / 'RUN'} goes on with this run from its last checkpoint"
    assert again in err.splitlines()
    # What the attacks were scored on is the model of that round, not the untrained one.
    assert Recording(tmp_path / "RUN" / "recording").rounds("main") == [0, 5]
    rows = report["attacks"][0], report["controls"]["untrained"][0]
    assert [row["round"] for row in rows] == [5, 0] and rows[0]["auc_ci"] != rows[1]["auc_ci"]


@dataclass(frozen=True)
class Interrupts(MoCo):
    """The user presses Ctrl-C as the first training begins."""

    def build(self, *given: Any) -> Any:
        method = super().build(*given)
        losses = method.losses

        def interrupted(*views: Any) -> Any:
            method.losses = losses
            interrupt()
            return losses(*views)

        method.losses = interrupted
        return method


@pytest.mark.parametrize("pretrain", ["none", "pooled"])
def test_in_the_first_training__says_that_nothing_is_finished(
    pretrain: str, tmp_path: Path
) -> None:
    """The model that the server was about to train is the untrained one."""
    flags = f"{TINY} --attacks none --pretrain {pretrain} --ssl {__name__}:Interrupts"
    report = ran(flags, tmp_path / "RUN", 130)
    assert report["interrupted"] == 0 and report["rounds"] == []
    assert report["verdict_code"] == "no-verdict"
    assert "the run was interrupted before its first round was finished" in report["verdict"]
    kept = Recording(tmp_path / "RUN" / "recording")
    assert same(kept.models()[0], kept.untrained())


def test_twice__stops_at_once_without_a_report(tmp_path: Path, capsys: Capture) -> None:
    in_round("main", 2, lambda: (interrupt(), interrupt()))
    flags = f"{TINY}{WATCHED}--rounds 4 --attacker passive --attacks tests.watched:Weighs"
    assert simulate(flags, tmp_path / "RUN") == 130
    assert "Traceback" not in capsys.readouterr().err
    assert not watched.SEEN.scored and not (tmp_path / "RUN" / "report.json").exists()


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize(("backend", "times"), [("inline", 2), ("ray", 1)])
def test_process__once_reports_on_the_finished_rounds_and_twice_ends_it_at_once(
    backend: str, times: int, tmp_path: Path
) -> None:
    out = tmp_path / "RUN"
    flags = TINY.replace("snapshots 1", "snapshots 5000")
    flags += f"--rounds 5000 {SIMILARITY} --backend {backend} --out {out}"
    with subprocess.Popen(
        [sys.executable, "-m", "fedmia.simulate", *shlex.split(flags)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 90
        while not (out / "recording" / "models" / "main" / "0003.safetensors").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        if times == 2:
            assert process.stderr is not None
            for line in process.stderr:  # two sent together are one
                if "interrupted" in line:
                    break
            process.send_signal(signal.SIGINT)
        printed, err = process.communicate(timeout=100)
    assert process.returncode == 130 and "Traceback" not in err, err
    if times == 2:
        assert time.monotonic() - began < 15 and not (out / "report.json").exists()
        return
    report = json.loads((out / "report.json").read_text())
    done = report["interrupted"]
    assert done >= 3 and [r["round"] for r in report["rounds"]] == list(range(1, done + 1))
    assert f"interrupted after round {done}" in report["verdict"]
    assert printed == report["verdict"] + "\n"
