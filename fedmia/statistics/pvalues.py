"""P-values of many tests: corrected together, and their false alarms where nothing is true.

Example:
    >>> holm([0.01, 0.04, 0.3])
    [0.03, 0.08, 0.3]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

VOID = 0.001  # chance of what a control says by chance alone, at which it has failed


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P-values that hold together: Holm (1979), Scand. J. Statist. 6:65. None stays None."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - rank)))
        adjusted[i] = least
    return adjusted


def count_alarms(values: Sequence[float], level: float) -> int:
    """How many p-values are at most `level`.

    Args:
        values: p-values, in [0, 1].
        level: in (0, 1).

    Returns:
        their number.
    """
    return int(np.sum(np.asarray(values) <= level + 1e-12))


def exceeds_false_alarms(values: Sequence[float]) -> bool:
    """Whether so many p-values under 5 % would be seen in less than VOID of all true nulls.

    It takes the p-values for independent, as those of sets are that are drawn anew from the same
    images. Sets that are fixed and compared with the same others, such as clients or subjects, are
    not: so many are seen in 6 to 8 % of all true nulls of 100 subjects among 20 others
    (`research/results/dataset_inference.json`).

    Args:
        values: p-values, in [0, 1].

    Returns:
        whether they are.
    """
    return bool(scipy.stats.binom.sf(count_alarms(values, 0.05) - 1, len(values), 0.05) < VOID)
