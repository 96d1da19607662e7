"""How many cores a busy machine leaves to this process, and how many threads suit that."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

from fedmia.runtime.cores import count_cores

SAMPLE = 0.2  # seconds of the measurement
BUSY = 0.8  # share of the cores under which a machine counts as busy


def measure_free_cores(seconds: float = SAMPLE) -> float:
    """Cores that this process gets if it wants all: measured, so limits of a container count too.

    One thread a core computes digests, which Python does outside its lock; each says which share
    of the time it had a core.

    Args:
        seconds: how long to measure.

    Returns:
        The sum of the shares, in (0, cores].
    """
    block = bytes(1 << 20)

    def share(_: int) -> float:
        began, mine = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds:
            hashlib.sha256(block).digest()
        return (time.thread_time() - mine) / (time.perf_counter() - began)

    cores = count_cores()
    with ThreadPoolExecutor(cores) as pool:
        return sum(pool.map(share, range(cores)))


def fewer_threads() -> tuple[int, str] | None:
    """How many threads to use where other work keeps the cores busy.

    Two threads of one operation wait for each other, so with fewer cores than threads most of the
    time is lost. Who set OMP_NUM_THREADS has chosen, and nothing is measured.

    Returns:
        Number of threads, at least 1, and a sentence that says why; None where all cores are free.
    """
    cores = count_cores()
    if cores == 1 or "OMP_NUM_THREADS" in os.environ:
        return None
    free = measure_free_cores()
    if free >= BUSY * cores:
        return None
    threads = max(1, int(free + 0.3))
    if threads == cores:
        return None
    plural = "thread" if threads == 1 else "threads"
    return threads, (
        f"{cores} cores, busy with other work ({free:.1f} of them are free): {threads} {plural}; "
        f"--threads {cores} uses all"
    )
