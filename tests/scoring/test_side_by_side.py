"""Pieces that are scored side by side, where one of them fails."""

from __future__ import annotations

import time
from threading import Event

import pytest

from fedmia.evaluation import run


def test_a_failure_waits_for_what_runs_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run that goes on in the same process, as in a notebook, meets its files."""
    monkeypatch.setattr(run, "count_cores", lambda: 2)
    began, ended = Event(), Event()

    def fails() -> None:
        assert began.wait(10)
        raise OSError("the disk is full")

    def writes() -> None:
        began.set()
        time.sleep(0.2)
        ended.set()

    work = {"fails": fails, "writes": writes}
    with pytest.raises(OSError, match="the disk is full"):
        run.run_side_by_side(work, threads=1)
    assert ended.is_set()


def test_results_by_name() -> None:
    assert run.run_side_by_side({"a": lambda: 1, "b": lambda: 2}, threads=1) == {"a": 1, "b": 2}
