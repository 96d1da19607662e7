"""How many targets an undecided claim would take, at the deviation that was seen between targets.

A claim is decided by Student's interval over targets: `held` where it lies over 0, `not held` where
it lies under the smallest effect of interest. With as many targets as are needed here it does the
first with probability `power` where the true mean is that effect, and by symmetry the second where
the true mean is 0. A mean between the two takes more, one outside fewer.

Example:
    >>> targets_needed(0.02, 0.02, family=5)
    19
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import scipy

from fedmia.statistics.intervals import Interval, tail
from fedmia.statistics.power import fewest

POWER = 0.9
MOST = 10**6  # targets, at which the search ends


def targets_needed(effect: float, sd: float, family: int = 1, power: float = POWER) -> int | None:
    """The fewest targets whose interval tells a mean of `effect` from one of 0.

    Args:
        effect: the smallest effect of interest, over 0.
        sd: standard deviation between targets.
        family: intervals that hold together (Bonferroni).
        power: probability of the decision, in (0, 1).

    Returns:
        The number, at least 2; None where more than a million would be needed.

    Raises:
        ValueError: an effect that is not over 0.
    """
    if effect <= 0:
        raise ValueError(f"effect must be over 0, got {effect}")

    return fewest(lambda n: chance_to_decide(effect, sd, n, family) >= power, MOST)


def chance_to_decide(effect: float, sd: float, n: int, family: int = 1) -> float:
    """Probability that Student's interval of `n` targets lies over 0.

    Args:
        effect: the true mean.
        sd: the true standard deviation between targets.
        n: targets, at least 2.
        family: intervals that hold together (Bonferroni).

    Returns:
        The probability, by the noncentral t distribution.
    """
    if sd == 0:
        return 1.0
    least = float(scipy.stats.t.isf(tail(family=family), n - 1))
    return float(scipy.stats.nct.sf(least, n - 1, effect / sd * math.sqrt(n)))


def deviation_limits(values: Sequence[float]) -> Interval:
    """95 % limits of the standard deviation between targets, by the chi-squared distribution.

    Args:
        values: one a target, two or more.

    Returns:
        Lower and upper limit.
    """
    freedom = len(values) - 1
    squares = freedom * statistics.variance(values)
    ends = (scipy.stats.chi2.isf(share, freedom) for share in (tail(), 1 - tail()))
    low, high = (math.sqrt(squares / float(end)) for end in ends)
    return low, high
