"""A study of real runs, killed with -9 in the middle and started again."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import fedmia

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
TINY = (
    "--dataset synthetic --clients 4 --rounds 2 --train.local_epochs 1 --model.width 4 "
    "--split.members 32 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --pretrain none "
    "--attacks similarity --federation.snapshots 1 --attack.similarity.views 4 "
)


def flags(out: Path) -> list[str]:
    return [*shlex.split(TINY), "--seeds", "2", "--jobs", "1", "--quiet", "--out", str(out)]


def until(true: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def at_work(out: Path) -> list[Path]:
    """Processes that were started for a run of the study and are alive."""
    results = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = line.read_bytes()
        except OSError:
            continue
        if b"fedmia.study.processes" in text and str(out).encode() in text:
            results.append(line)
    return results


@pytest.mark.slow(seconds=25)
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads /proc")
def test_killed__nothing_finished_runs_twice_and_a_run_is_what_simulate_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, first = tmp_path / "OUT", tmp_path / "OUT" / "cells" / "seed=0" / "report.json"
    command = [sys.executable, "-m", "fedmia.study", *flags(out)]
    with subprocess.Popen(command, cwd=ROOT) as study:
        until(lambda: (out / "unfinished" / "seed=1").exists(), 200)
        assert first.exists() and not (out / "cells" / "seed=1").exists() and at_work(out)
        study.kill()
    until(lambda: not at_work(out), 20)  # the run ends with the sweep
    assert not (out / "study.json").exists()
    made = os.stat(first)
    monkeypatch.chdir(ROOT)
    ran = fedmia(["study", *flags(out)])
    assert ran.code == 0 and ran.err == ""
    assert ran.out.startswith("2 of 2 runs are finished; 0 of them leak")
    assert (made.st_mtime_ns, made.st_ino) == (os.stat(first).st_mtime_ns, os.stat(first).st_ino)
    assert not (out / "unfinished").exists()
    alone = json.loads(fedmia(f"simulate {TINY} --seed 1 --json").out)
    ours = json.loads((out / "cells" / "seed=1" / "report.json").read_text(encoding="utf-8"))
    assert {**ours, "timing": 0} == {**alone, "timing": 0}
