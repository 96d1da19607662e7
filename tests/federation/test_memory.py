"""What a client had at hand goes with its round: no circle of references holds its weights."""

from __future__ import annotations

import gc
import shlex
import weakref
from dataclasses import dataclass
from typing import Any

from fedmia.defenses.base import Defense
from fedmia.ssl.train import Job
from tests.small_runs import SMALL, WATCHED, call_main
from tests.watched import watch

JOBS = list[weakref.ref[Any]]()


@dataclass(frozen=True)
class Notes(Defense):
    """Remembers each job of its client, and does nothing else."""

    def adapt(self, job: Job, memory: dict[str, Any]) -> None:
        JOBS.append(weakref.ref(job))


def test_round__leaves_no_job_to_the_garbage_collector() -> None:
    JOBS.clear()
    seen, alive = watch(), list[int]()
    for number in range(1, 5):
        seen.acts["main", number] = lambda: alive.append(sum(r() is not None for r in JOBS))
    line = f"{SMALL}{WATCHED}--clients 3 --rounds 4 --attacks none --defense {__name__}:Notes"
    gc.disable()
    try:
        assert call_main(shlex.split(line)) == 0
    finally:
        gc.enable()
    assert len(JOBS) == 12 and len(alive) == 4
    assert max(alive) <= 2  # of a thread that is on its way out of a client
