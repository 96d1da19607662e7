"""Confidence intervals that stay honest near 0 and 1, and their combination.

`level` is the confidence level in (0, 1); `family` is the number of intervals that shall hold
together, by Bonferroni: each is then taken at 1 - (1 - level) / family.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.stats import beta, norm

Interval = tuple[float, float]
LEVEL = 0.95


def z_value(level: float = LEVEL, family: int = 1) -> float:
    """Two-sided normal quantile of one of `family` simultaneous intervals."""
    return float(norm.isf((1 - level) / (2 * max(family, 1))))


def auc_variance(theta: float, m: float, n: float) -> float:
    """Variance of a Mann-Whitney AUC whose true value is `theta`, of m and n scores.

    Hanley and McNeil (1982) with both sample sizes in the bracket replaced by their mean:
    Newcombe (2006), Statist. Med. 25:559, method 5.
    """
    spread = (1 - theta) / (2 - theta) + theta / (1 + theta)
    return theta * (1 - theta) * (1 + ((m + n) / 2 - 1) * spread) / (m * n)


def auc_interval(auc: float, m: float, n: float, level: float = LEVEL, family: int = 1) -> Interval:
    """Interval of an AUC from m and n scores: Newcombe (2006), method 5.

    Its limits are the two theta with |auc - theta| = z sqrt(V(theta)), so that it keeps its width
    at AUC 0 and 1, where intervals around the estimate collapse. m and n may be effective sizes.

    Raises:
        ValueError: an AUC outside [0, 1], or a size below 1.
    """
    if not 0 <= auc <= 1 or m < 1 or n < 1:
        raise ValueError(f"no interval for AUC {auc} of {m} and {n} scores")
    z = z_value(level, family)

    def excess(theta: float) -> float:
        return abs(auc - theta) - z * math.sqrt(auc_variance(theta, m, n))

    # At theta = auc the excess is negative, at the far end positive; at auc 0 or 1 it is zero
    # there, so the search starts a hair inside.
    hair = 1e-12
    low = 0.0 if auc <= hair else float(brentq(excess, 0.0, min(auc, 1 - hair), xtol=1e-12))
    high = 1.0 if auc >= 1 - hair else float(brentq(excess, max(auc, hair), 1.0, xtol=1e-12))
    return low, high


def wilson(k: float, n: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a proportion k / n."""
    if n <= 0:
        return 0.0, 1.0
    z = z_value(level)
    p, zz = k / n, z * z / n
    centre = (p + zz / 2) / (1 + zz)
    half = z * math.sqrt(p * (1 - p) / n + zz / (4 * n)) / (1 + zz)
    # At k = 0 and k = n the limit is exactly 0 or 1; rounding would miss it by one bit.
    low = 0.0 if k <= 0 else max(0.0, centre - half)
    high = 1.0 if k >= n else min(1.0, centre + half)
    return low, high


def clopper_pearson(k: int, n: int, level: float = LEVEL) -> Interval:
    """Exact (conservative) interval of a proportion k / n."""
    if n <= 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = 0.0 if k == 0 else float(beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k == n else float(beta.isf(tail, k + 1, n - k))
    return low, high


def mover_difference(
    a: float, a_ci: Interval, b: float, b_ci: Interval, correlation: float = 0.0
) -> Interval:
    """Interval of a - b out of the intervals of a and b: MOVER.

    Zou and Donner (2008), Statist. Med. 27:1693; with a correlation, Zou (2007). It inherits the
    asymmetry of the two intervals, and so does not collapse near the ends of their range.
    """
    down_a, up_a = a - a_ci[0], a_ci[1] - a
    down_b, up_b = b - b_ci[0], b_ci[1] - b
    below = down_a**2 - 2 * correlation * down_a * up_b + up_b**2
    above = up_a**2 - 2 * correlation * up_a * down_b + down_b**2
    return a - b - math.sqrt(max(below, 0.0)), a - b + math.sqrt(max(above, 0.0))


def mover_mean(a: float, a_ci: Interval, b: float, b_ci: Interval) -> Interval:
    """Interval of (a + b) / 2 of two independent proportions out of theirs: MOVER."""
    low, high = mover_difference(a, a_ci, 1 - b, (1 - b_ci[1], 1 - b_ci[0]))
    return max(0.0, (low + 1) / 2), min(1.0, (high + 1) / 2)


def precision_interval(
    true_positives: int, members: int, false_positives: int, nonmembers: int, level: float = LEVEL
) -> Interval:
    """Conservative interval of TPR / (TPR + FPR), the precision at equally many of both.

    TPR and FPR come from independent images, so two Wilson intervals at sqrt(level) hold together
    at `level`; precision rises in one and falls in the other, so its limits lie in two corners.
    """
    each = math.sqrt(level)
    low_t, high_t = wilson(true_positives, members, each)
    low_f, high_f = wilson(false_positives, nonmembers, each)
    low = low_t / (low_t + high_f) if low_t + high_f > 0 else 0.0
    high = high_t / (high_t + low_f) if high_t + low_f > 0 else 1.0
    return low, high
