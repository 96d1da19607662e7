"""Pieces that are scored side by side, where one of them fails."""

from __future__ import annotations

from threading import Event

import pytest

from fedmia.evaluation import score
from fedmia.evaluation.suite import Progress


class Killed(BaseException):
    """Nothing that anybody catches."""


@pytest.mark.parametrize(
    ("error", "waits"),
    [(OSError("the disk is full"), True), (Killed(), True), (KeyboardInterrupt(), False)],
)
def test_failure__waits_for_what_runs_beside_it(
    error: BaseException, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run that goes on in the same process, as in a notebook, meets its files. A second
    Ctrl-C waits for nothing."""
    monkeypatch.setattr(score, "count_cores", lambda: 2)
    began, free, ended = Event(), Event(), Event()

    def fails() -> None:
        assert began.wait(60)
        raise error

    def writes() -> None:
        began.set()
        free.wait(0.2 if waits else 600)
        ended.set()

    work = {"fails": fails, "writes": writes}
    with pytest.raises(type(error)) as caught:
        score.run_side_by_side(work, 1, Progress())
    assert caught.value is error and ended.is_set() is waits
    free.set()


def test_results_by_name() -> None:
    work = {"a": lambda: 1, "b": lambda: 2}
    for threads in (1, None):
        assert score.run_side_by_side(work, threads, Progress()) == {"a": 1, "b": 2}
