"""Where the seconds went: nothing is counted twice, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmia.runtime import stopwatch
from fedmia.runtime.stopwatch import PARTS, Stopwatch, covered_seconds


class Clock:
    """A clock that moves by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: self.now)

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_part__what_no_part_claims_is_overhead(clock: Clock) -> None:
    watch = Stopwatch(clock.now)
    clock.pass_(2)
    with watch.part("data"):
        clock.pass_(3)
    clock.pass_(5)
    timing = watch.timing()
    assert (timing["data"], timing["overhead_s"], timing["total_s"]) == (3, 7, 10)
    assert list(timing) == [*PARTS, "total_s"]


def test_part__the_innermost_has_the_time(clock: Clock) -> None:
    watch = Stopwatch(clock.now)
    with watch.part("attacks"):
        clock.pass_(1)
        with watch.part("probes"):
            clock.pass_(2)
        clock.pass_(4)
    timing = watch.timing()
    assert (timing["attacks"], timing["probes"], timing["overhead_s"]) == (5, 2, 0)


def test_part__ends_with_an_error_too(clock: Clock) -> None:
    watch = Stopwatch(clock.now)
    with pytest.raises(KeyError), watch.part("data"):
        clock.pass_(1)
        raise KeyError
    clock.pass_(2)
    assert watch.timing()["data"] == 1 and watch.timing()["overhead_s"] == 2


def test_claim__takes_what_has_passed_before(clock: Clock) -> None:
    watch = Stopwatch(clock.now - 6)  # the imports ran before there was a watch
    watch.claim("import")
    clock.pass_(1)
    timing = watch.timing()
    assert (timing["import"], timing["overhead_s"]) == (6, 1)


def test_move__clients_seconds_come_out_of_the_overhead(clock: Clock) -> None:
    watch = Stopwatch(clock.now)
    clock.pass_(10)
    watch.move("train", 7)
    timing = watch.timing()
    assert (timing["train"], timing["overhead_s"], timing["total_s"]) == (7, 3, 10)


def test_timing__asked_twice_goes_on(clock: Clock) -> None:
    watch = Stopwatch(clock.now)
    clock.pass_(1)
    assert watch.timing()["total_s"] == 1
    clock.pass_(1)
    assert watch.timing()["total_s"] == 2


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0),
        ([(1, 3)], 2),
        ([(1, 3), (5, 6)], 3),
        ([(1, 3), (2, 6)], 5),  # side by side
        ([(1, 9), (2, 3), (4, 5)], 8),  # one inside the other
        ([(5, 6), (1, 2)], 2),  # in any order
        ([(1, 2), (2, 3)], 2),
    ],
)
def test_covered__seconds_in_which_anybody_ran(
    spans: list[tuple[float, float]], seconds: float
) -> None:
    assert covered_seconds(spans) == seconds


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8))
def test_covered__counts_each_second_once(pairs: list[tuple[int, int]]) -> None:
    spans = [(float(a), float(a + n)) for a, n in pairs]
    assert covered_seconds(spans) == len({s for a, n in pairs for s in range(a, a + n)})
