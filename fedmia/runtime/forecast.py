"""What work that is not done yet will cost, by pieces of its kind that were measured.

The one rule of `--plan`, of the rehearsal of an audit, of the time left and of studies: work costs
what is paid once, and so much a unit; where several workers are, each takes the next piece when it
is free. A cost is in seconds, queries or images sent.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def cost_of(units: float, cost: float, measured: float, once: float = 0.0) -> float:
    """The cost of work.

    Args:
        units: of the work, such as images or rounds.
        cost: of those units of its kind that were measured, without what is paid once.
        measured: how many these are, above 0.
        once: what is paid once.

    Returns:
        The cost.
    """
    return once + cost / measured * units


def paid_once(first: float, units: float, cost: float, measured: float) -> float:
    """What the first piece of work cost more than its units cost later, at least 0.

    Args:
        first: cost of the first piece.
        units: of the first piece.
        cost: of the pieces after it.
        measured: units of the pieces after it, above 0.

    Returns:
        The cost.
    """
    return max(0.0, first - cost_of(units, cost, measured))


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Seconds until all pieces are done, in their order, each by the first worker that is free.

    Args:
        seconds: of each piece.
        workers: side by side, at least 1.

    Returns:
        The seconds; 0 without a piece.
    """
    ends = [0.0] * workers
    for took in seconds:
        heapq.heapreplace(ends, ends[0] + took)
    return max(ends)
