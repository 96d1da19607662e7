"""Confidence intervals that stay honest near 0 and 1, and their combination.

`level` is the confidence level in (0, 1); `family` is the number of intervals that shall hold
together, by Bonferroni: each is then taken at 1 - (1 - level) / family.

Example:
    >>> low, high = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy  # its `stats`, a fifth of what a run imports, waits until it is used
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
Interval = tuple[float, float]
LEVEL = 0.95
ONE_SIDED = 2 * LEVEL - 1  # of intervals each end of which is to hold at LEVEL by itself


def tail(level: float = LEVEL, family: int = 1) -> float:
    """Probability beyond either end of one of `family` simultaneous intervals.

    Args:
        level: confidence level, in (0, 1).
        family: number of intervals that hold together at `level`; 0 counts as 1.

    Returns:
        probability, in (0, 0.5).

    Raises:
        ValueError: `level` outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    return (1 - level) / (2 * max(family, 1))


def score_limits(p: float, n: float, z: float) -> Interval:
    """Wilson's (1927) limits: the two proportions that are z standard errors of n trials, each
    taken at the limit itself, away from p. In [0, 1]; 0 or 1 only where p is.

    Args:
        p: observed proportion, in [0, 1].
        n: number of trials, > 0; may be an effective number.
        z: quantile of the standard normal distribution, > 0.

    Returns:
        lower and upper limit.
    """
    zz = z * z / n
    centre = (p + zz / 2) / (1 + zz)
    half = z * math.sqrt(p * (1 - p) / n + zz / (4 * n)) / (1 + zz)
    # At p = 0 and p = 1 the limit is exactly 0 or 1; rounding would miss it by one bit.
    return min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half))


def wilson(k: float, n: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a proportion k / n.

    Args:
        k: number of successes, 0 <= k <= n.
        n: number of trials.
        level: confidence level, in (0, 1).

    Returns:
        lower and upper limit, in [0, 1].
    """
    if n <= 0:
        return 0.0, 1.0
    return score_limits(k / n, n, float(scipy.stats.norm.isf(tail(level))))


def clopper_pearson(k: float, n: float, level: float = LEVEL) -> Interval:
    """Exact (conservative) interval of a proportion k / n.

    Args:
        k: number of successes, 0 <= k <= n.
        n: number of trials.
        level: confidence level, in (0, 1).

    Returns:
        lower and upper limit, in [0, 1].
    """
    if n <= 0:
        return 0.0, 1.0
    end = tail(level)
    low = 0.0 if k == 0 else float(scipy.stats.beta.ppf(end, k, n - k + 1))
    high = 1.0 if k == n else float(scipy.stats.beta.isf(end, k + 1, n - k))
    return low, high


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Gaffke's interval of the mean of few independent values, whatever their distribution.

    Each limit is a quantile of the mean under uniform random weights (Dirichlet's) of the values
    and of one more, which is the worst there can be: 0 for the lower limit, 1 for the upper. Of
    values of 0 and 1 this is Clopper and Pearson's interval. No case is known in which it covers
    less than its level, which is not proved (Learned-Miller and Thomas, 2020, arXiv:1905.06208).

    Args:
        values: one of each federation or model, such as its AUC, in [0, 1]; at least one.
        level: confidence level, in (0, 1).

    Returns:
        lower and upper limit, in [0, 1]; never a point.
    """
    own = np.asarray(values, dtype=np.float64)
    return _lower_limit(own, tail(level)), 1 - _lower_limit(1 - own, tail(level))


def _lower_limit(values: FloatArray, end: float) -> float:
    """Under which the randomly weighted mean of the values and of 0 lies with probability `end`."""
    points, highest = np.append(values, 0.0), float(values.max())
    if highest <= 0:
        return 0.0

    def excess(limit: float) -> float:
        """P(sum of (point - limit) times exponential numbers <= 0) - `end` (Gil-Pelaez, 1951)."""
        apart = points - limit
        apart /= np.abs(apart).max()

        def wave(s: float) -> float:
            x = s * apart
            size = math.exp(-0.5 * float(np.log1p(x * x).sum()))
            return math.sin(float(np.arctan(x).sum())) * size / s

        return 0.5 - float(scipy.integrate.quad(wave, 0, math.inf, limit=200)[0]) / math.pi - end

    return float(scipy.optimize.brentq(excess, 0.0, highest, xtol=1e-6))


def rate_interval(
    hits: IntArray, alarms: IntArray, n: int, m: int, target: float,
    trials: Callable[[int, int, float], float] | None = None, family: int = 1,
) -> Interval:  # fmt: skip
    """Interval of the TPR at a true FPR of `target`; holds at LEVEL whatever the scores' shape.

    Of m non-members Binomial(m, target) lie over the threshold that has this FPR: its quantiles
    bound where among the ordered scores it lies, and so between which two thresholds. The limits
    are Clopper-Pearson's at those two. Each of the two errors gets half of what LEVEL leaves.
    Where the count may be none, the threshold may lie over every score, and the lower limit is 0.

    Args:
        hits, alarms: (k,) of n members and m non-members those at or over each threshold, rising
            from the first, which nobody reaches.
        n: number of members.
        m: number of non-members.
        target: true false-positive rate, in (0, 1).
        trials: (side, threshold, end) -> independent trials that the images of a side are worth
            there, side 0 of members; none: as many as images.
        family: intervals that hold together at LEVEL.

    Returns:
        lower and upper limit of the true-positive rate, in [0, 1].
    """
    end = tail(LEVEL, 2 * family)
    binomial, size = scipy.stats.binom, float(m)
    if trials is not None:
        size = round(trials(1, int(np.flatnonzero(alarms <= m * target + 1e-9)[-1]), end))
    fewest, most = int(binomial.ppf(end, size, target)), int(binomial.isf(end, size, target))
    reached = alarms * (size / m)
    below = np.flatnonzero(reached <= fewest - 1)
    ends = [below[-1] if len(below) else 0, np.flatnonzero(reached <= most)[-1]]
    worth = [float(n) if trials is None else trials(0, int(at), end) for at in ends]
    limits = (
        clopper_pearson(hits[at] * (count / n), count, 1 - 2 * end)
        for at, count in zip(ends, worth, strict=True)
    )
    (low, _), (_, high) = limits
    return (low, high) if fewest else (0.0, high)


def mover_difference(
    a: float, a_ci: Interval, b: float, b_ci: Interval, correlation: float = 0.0
) -> Interval:
    """Interval of a - b out of the intervals of a and b: MOVER.

    Zou and Donner (2008), Statist. Med. 27:1693; with a correlation, Zou (2007). It inherits the
    asymmetry of the two intervals, and so does not collapse near the ends of their range.

    Args:
        a: first value.
        a_ci: its interval.
        b: second value.
        b_ci: its interval, at the same level.
        correlation: of the two values, in [-1, 1].

    Returns:
        lower and upper limit.
    """
    down_a, up_a = a - a_ci[0], a_ci[1] - a
    down_b, up_b = b - b_ci[0], b_ci[1] - b
    below = down_a**2 - 2 * correlation * down_a * up_b + up_b**2
    above = up_a**2 - 2 * correlation * up_a * down_b + down_b**2
    return a - b - math.sqrt(max(below, 0.0)), a - b + math.sqrt(max(above, 0.0))


def mover_mean(a: float, a_ci: Interval, b: float, b_ci: Interval) -> Interval:
    """Interval of (a + b) / 2 of two independent proportions out of theirs: MOVER.

    Args:
        a: first proportion.
        a_ci: its interval.
        b: second proportion, of an independent sample.
        b_ci: its interval, at the same level.

    Returns:
        lower and upper limit.
    """
    low, high = mover_difference(a, a_ci, 1 - b, (1 - b_ci[1], 1 - b_ci[0]))
    return max(0.0, (low + 1) / 2), min(1.0, (high + 1) / 2)


def precision_interval(
    true_positives: float, members: float, false_positives: float, nonmembers: float
) -> Interval:
    """Conservative interval of TPR / (TPR + FPR), the precision at equally many of both.

    TPR and FPR come from independent images, so two Wilson intervals at sqrt(LEVEL) hold together
    at LEVEL; precision rises in one and falls in the other, so its limits lie in two corners.

    Args:
        true_positives: members that are called members.
        members: number of members.
        false_positives: non-members that are called members.
        nonmembers: number of non-members.

    Returns:
        lower and upper limit, in [0, 1].
    """
    each = math.sqrt(LEVEL)
    low_t, high_t = wilson(true_positives, members, each)
    low_f, high_f = wilson(false_positives, nonmembers, each)
    low = low_t / (low_t + high_f) if low_t + high_f > 0 else 0.0
    high = high_t / (high_t + low_f) if high_t + low_f > 0 else 1.0
    return low, high
