"""Where a run's seconds went: parts that do not overlap and sum to the whole."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

PARTS = ("import", "data", "train", "attacks", "probes", "report", "overhead_s")


class Stopwatch:
    """Time goes to the innermost open part; what no part claims is overhead.

    Args:
        started: `time.perf_counter()` when the run began.
    """

    def __init__(self, started: float) -> None:
        self._mark = started
        self._open = ["overhead_s"]
        self.seconds = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Charge the time inside to `name`."""
        self.claim()
        self._open.append(name)
        try:
            yield
        finally:
            self.claim()
            self._open.pop()

    def claim(self, name: str = "") -> None:
        """Charge what has passed since the last charge to `name`, or to the innermost part."""
        now = time.perf_counter()
        self.seconds[name or self._open[-1]] += now - self._mark
        self._mark = now

    def move(self, name: str, seconds: float) -> None:
        """Take seconds out of the overhead and charge them to a part.

        Args:
            name: of the part.
            seconds: to move.
        """
        self.claim()
        self.seconds["overhead_s"] -= seconds
        self.seconds[name] += seconds

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of an earlier process of the same run."""
        for name, more in seconds.items():
            self.seconds[name] += more

    def timing(self) -> dict[str, float]:
        """Seconds by part, and `total_s`, their sum."""
        self.claim()
        return {**self.seconds, "total_s": sum(self.seconds.values())}


def covered_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds during which at least one of the (began, ended) spans was running."""
    total, end = 0.0, float("-inf")
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, end))
        end = max(end, ended)
    return total
