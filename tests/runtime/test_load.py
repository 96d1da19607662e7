"""Threads of an audit on a busy machine, of as many cores and as much load as is made believe."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from tests.bank import Bank
from tests.commands import fedmia

SPARE = "--attacks lpla --device cpu"


@pytest.mark.parametrize(
    ("cores", "share", "more", "want"),
    [
        (2, 0.5, "", 1),
        (16, 0.38, "", 6),
        (1, 0.3, "", 0),
        (2, 0.1, "--threads 2", 2),
    ],
)
def test_threads__as_many_as_are_free_and_the_report_says_so(
    cores: int, share: float, more: str, want: int, bank: Bank, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A share of each core is this process's."""
    run, clock = bank.run("central"), time.perf_counter
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(cores)})
    monkeypatch.setattr(time, "thread_time", lambda: share * clock())
    ran = fedmia(f"audit --federation {run}/recording {SPARE} {more}", tmp_path / "RUN")
    config = yaml.safe_load((tmp_path / "RUN" / "config.yaml").read_text())
    assert config.get("threads", config.get("machine", {}).get("threads")) == want
    busy = "busy with other work" in ran.err
    notes = [note for note in ran.report["notes"] if "--threads" in note]
    assert busy is bool(notes) is (want > 0 and not more)
    for note in notes:
        assert f"used {want} thread" in note and f"(--threads) {want} repeats" in note
