"""Where the seconds went: nothing is counted twice, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmia.runtime import stopwatch
from fedmia.runtime.stopwatch import PARTS, Stopwatch, covered_seconds


def test_part__the_innermost_has_the_time_and_overhead_what_none_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where a part ends with an error; clients' seconds come out of the overhead."""
    now = 106.0
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: now)
    watch = Stopwatch(100.0)  # the imports ran before there was a watch
    watch.claim("import")
    now += 2
    with pytest.raises(KeyError), watch.part("attacks"):
        now += 1
        with watch.part("probes"):
            now += 2
        now += 4
        raise KeyError
    now += 10
    watch.move("train", 7)
    timing = watch.timing()
    assert list(timing) == [*PARTS, "total_s"]
    assert {part: seconds for part, seconds in timing.items() if seconds} == {
        "import": 6, "attacks": 5, "probes": 2, "train": 7, "overhead_s": 2 + 10 - 7, "total_s": 25,
    }  # fmt: skip
    now += 1
    assert watch.timing()["total_s"] == 26


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8))
def test_covered__counts_each_second_once(pairs: list[tuple[int, int]]) -> None:
    """In which anybody ran: side by side, one inside the other, in any order."""
    spans = [(float(a), float(a + n)) for a, n in pairs]
    assert covered_seconds(spans) == len({s for a, n in pairs for s in range(a, a + n)})
