"""CPU cores: how many this process may use, and a share of them for each that it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def count_cores() -> int:
    """How many CPU cores this process may use, at least 1."""
    return len(_usable_cores()) or os.cpu_count() or 1


def share_cores(jobs: int) -> list[list[int]]:
    """The cores of each of `jobs` processes side by side, dealt in turn, at least one for each.

    Empty where the system binds no process to cores: each then uses what all may.
    """
    mine = _usable_cores()
    return [mine[i % len(mine) :: jobs] if mine else [] for i in range(jobs)]


@contextmanager
def bind_cores(share: Sequence[int]) -> Iterator[None]:
    """What this thread starts inside may use the cores of `share` alone; all if it is empty."""
    before = _usable_cores()
    if share:
        os.sched_setaffinity(0, share)
    try:
        yield
    finally:
        if share:
            os.sched_setaffinity(0, before)


def _usable_cores() -> list[int]:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return sorted(affinity(0)) if affinity else []
