"""The scheduler: order, needs, failures, the end of the time, of jobs that are tiny processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Event

import pytest

from fedmia.study.scheduler import (
    HINT,
    ProcessJob,
    exit_code,
    explain_exit,
    going_on,
    run_jobs,
    side_by_side,
)

CORES = "import os, sys; print(sorted(os.sched_getaffinity(0)))"
# Until a file is there, ten seconds at most.
AWAIT = """
import os, sys, time
for _ in range(1000):
    if os.path.exists({!r}):
        sys.exit(0)
    time.sleep(0.01)
sys.exit(9)
"""


class Jobs:
    """Makes jobs that run some Python, and remembers their names in the order of what happens."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events = folder, list[str]()

    def job(self, name: str, text: str = "", needs: str = "") -> ProcessJob:
        log = self.folder / f"{name}.log"

        def begin() -> list[str]:
            self.events.append(f"+{name}")
            return [sys.executable, "-I", "-S", "-c", text]

        def keep(code: int, seconds: float) -> str | None:
            assert seconds > 0
            self.events.append(f"-{name}")
            return explain_exit(code, log, {}) if code else None

        return ProcessJob(name, begin, keep, log, 1, needs)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def test_order__the_first_that_can_start(jobs: Jobs) -> None:
    """What another needs runs before it, wherever the list has them."""
    listed = [jobs.job("c", needs="b"), jobs.job("a"), jobs.job("b", needs="a"), jobs.job("d")]
    assert run_jobs(listed, 1, Event(), True) == {}
    assert jobs.events == ["+a", "-a", "+b", "-b", "+c", "-c", "+d", "-d"]


def test_needs__a_job_waits_for_its_own_alone(jobs: Jobs, tmp_path: Path) -> None:
    """`two` ends once the job that needs `one` has begun: it does not wait for all first jobs."""
    mark = tmp_path / "mark"
    listed = [
        jobs.job("one"),
        jobs.job("two", AWAIT.format(str(mark))),
        jobs.job("above", f"open({str(mark)!r}, 'w')", needs="one"),
        jobs.job("last", needs="two"),
    ]
    assert run_jobs(listed, 2, Event(), True) == {}
    assert jobs.events.index("+above") < jobs.events.index("-two")


def test_needs__in_a_circle_are_no_endless_wait(jobs: Jobs) -> None:
    with pytest.raises(AssertionError, match="a, b"):
        run_jobs([jobs.job("a", needs="b"), jobs.job("b", needs="a")], 1, Event(), True)


def test_need_finished_earlier__is_no_job_of_the_list(jobs: Jobs) -> None:
    assert run_jobs([jobs.job("audit", needs="encoder")], 1, Event(), True) == {}
    assert jobs.events == ["+audit", "-audit"]


def test_failed__takes_what_needs_it_and_no_other(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [
        jobs.job("a", "print('begun'); print('no images'); raise SystemExit(2)"),
        jobs.job("b", needs="a"),
        jobs.job("c", needs="b"), jobs.job("d"),
    ]  # fmt: skip
    failed = run_jobs(listed, 1, Event(), False)
    assert failed == {"a": "no images", "b": "a failed", "c": "b failed"}
    assert jobs.events == ["+a", "-a", "+d", "-d"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1:3] for line in lines] == [
        [f"{i + 1}/4", n] for i, n in enumerate("abcd")
    ]
    assert exit_code(Event(), failed) == 1 and exit_code(Event(), {}) == 0


def test_time_is_over__ends_what_runs_and_says_how_to_go_on(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = Event()
    with going_on(stop):
        failed = run_jobs(
            [jobs.job("a", AWAIT.format("/no/such")), jobs.job("b")], 1, stop, True, 1e-6
        )
    assert failed == {} and jobs.events == ["+a"]
    assert exit_code(stop, {"a": "x"}) == 130
    assert capsys.readouterr().err == f"fedmia: {HINT}\n"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="binds no process to cores")
def test_cores__are_shared_by_as_many_as_can_run_at_once(jobs: Jobs, tmp_path: Path) -> None:
    """A job and the one that needs it never do."""
    assert run_jobs([jobs.job("a", CORES), jobs.job("b", CORES, needs="a")], 2, Event(), True) == {}
    mine = sorted(os.sched_getaffinity(0))
    assert [(tmp_path / f"{name}.log").read_text() for name in "ab"] == [f"{mine}\n"] * 2


def test_side_by_side__as_asked_else_as_many_as_have_cores() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = [(3, 1), (None, 1), (None, 2), (None, 99)]
    wanted = [3, cores, max(1, (cores or 1) // 2), 1]
    assert [side_by_side(jobs, ["cpu", "cpu"], n) for jobs, n in asked] == wanted
