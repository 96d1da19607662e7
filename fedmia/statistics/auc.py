"""An AUC with DeLong's variance, an interval that covers whatever the scores' shapes are, and the
difference of two AUCs of the same images.

The interval is Wilson's, with the number of independent trials that DeLong's variance implies: N =
AUC (1 - AUC) / variance. Variance formulas that assume a shape of the scores (Hanley and McNeil
1982; Newcombe 2006) miss where members are more spread than non-members, or a part of them is
recognised and the rest is not; DeLong's own is too small near 0 and 1, where the few pairs that it
rests on may not have been drawn. There it is mixed with the largest variance that any shape has.
`research/measurements/coverage.py` measures what is covered.

Example:
    >>> import numpy as np
    >>> members = np.array([0.9, 0.8, 0.4])
    >>> nonmembers = np.array([0.7, 0.3, 0.2, 0.1])
    >>> estimate = auc_estimate(members, nonmembers)
    >>> round(estimate.value, 3)
    0.917
    >>> low, high = auc_interval(estimate)
    >>> round(low, 3), round(high, 3)
    (0.291, 0.997)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from scipy.special import stdtrit

from fedmia.statistics.intervals import (
    LEVEL,
    FloatArray,
    IntArray,
    Interval,
    mover_difference,
    score_limits,
    tail,
)
from fedmia.statistics.subjects import Subjects, subject_means

Sides = tuple[FloatArray, FloatArray]  # scores of members (n,) and of non-members (m,)
NEARLY_ALL = 0.95  # of a side: whatever its others score, the AUC is within 0.05 of guessing
ROUNDING = 4 * float(np.finfo(np.float32).eps)  # relative, of scores that a network gives


@dataclass(frozen=True)
class AucEstimate:
    """An AUC in [0, 1] and how sure it is.

    Attributes:
        value: the AUC, in [0, 1].
        variance: DeLong's (1988), unbiased.
        freedom: its degrees of freedom, at least 1 (Welch and Satterthwaite).
        smaller: images, or subjects, of the smaller side; may be an effective number, at least 1.
    """

    value: float
    variance: float
    freedom: float
    smaller: float


def auc(members: FloatArray, nonmembers: FloatArray) -> float:
    """Mann-Whitney AUC with mid-ranks: P(member > non-member) + P(equal) / 2.

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.

    Returns:
        the AUC, in [0, 1].

    Raises:
        ValueError: no scores on one side.
    """
    n, m = len(members), len(nonmembers)
    if n == 0 or m == 0:
        raise ValueError(f"no AUC from {n} members and {m} non-members")
    ranks = scipy.stats.rankdata(np.concatenate([members, nonmembers]))
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def one_score_count(members: FloatArray, nonmembers: FloatArray) -> int | None:
    """How many images have one and the same score, where that is NEARLY_ALL of each side.

    Ties count half, so that the AUC is then within (1 - NEARLY_ALL^2) / 2 of guessing. An attack
    has no answer for these images, which is another thing than a wrong one.

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.

    Returns:
        the images of both sides within ROUNDING of the median; None where they are fewer, or a
        side is empty.
    """
    sides = [np.asarray(side, np.float64) for side in (members, nonmembers)]
    if not all(map(len, sides)):
        return None
    ranked = np.sort(np.concatenate(sides))
    median = ranked[len(ranked) // 2]
    alike = [np.isclose(side, median, rtol=ROUNDING, atol=0) for side in sides]
    nearly = all(one.mean() >= NEARLY_ALL for one in alike)
    return int(sum(one.sum() for one in alike)) if nearly else None


def share_below(scores: FloatArray, others: FloatArray, weights: FloatArray) -> FloatArray:
    """Weight of the `others` (m,) below each of `scores` (n,); ties count half.

    Args:
        scores: `(n,)`.
        others: `(m,)`.
        weights: of the others, `(m,)`.

    Returns:
        weights below each score, `(n,)`.
    """
    order = np.argsort(others, kind="stable")
    ranked, sums = others[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    first, last = (np.searchsorted(ranked, scores, side=side) for side in ("left", "right"))
    shares: FloatArray = (sums[first] + sums[last]) / 2
    return shares


def placements(members: FloatArray, nonmembers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """DeLong's (1988) structural components: for each member the share of non-members below it,
    for each non-member the share of members above it; ties count half. Shapes (n,), (m,).

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.

    Returns:
        components of the members `(n,)` and of the non-members `(m,)`, in [0, 1].
    """
    below = share_below(members, nonmembers, np.full(len(nonmembers), 1 / len(nonmembers)))
    above = 1 - share_below(nonmembers, members, np.full(len(members), 1 / len(members)))
    return below, above


def auc_estimate(
    members: FloatArray, nonmembers: FloatArray, weights: FloatArray | None = None,
    subjects: Subjects | None = None,
) -> AucEstimate:  # fmt: skip
    """The AUC of scores (n,) and (m,) with DeLong's variance, between subjects where these are
    known (Obuchowski 1997, Biometrics 53:567).

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.
        weights: (m,) of the non-members, which sum to 1; none: all the same.
        subjects: of the members (n,) and of the non-members (m,); none: each image is its own.

    Returns:
        the AUC, its variance and its degrees of freedom.

    Raises:
        ValueError: no scores on one side.
    """
    n, m = len(members), len(nonmembers)
    if n == 0 or m == 0:
        raise ValueError(f"no AUC from {n} members and {m} non-members")
    w = np.full(m, 1 / m) if weights is None else weights
    # Counts are exact where sums of 1 / m are not: perfect scores give an AUC of exactly 1.
    each, unit = (np.ones(m), m) if weights is None else (weights, 1)
    below = share_below(members, nonmembers, each)
    above = 1 - share_below(nonmembers, members, np.ones(n)) / n
    value = float(np.clip(below.sum() / (n * unit), 0.0, 1.0))
    below = below / unit
    parts: list[tuple[FloatArray, FloatArray]] = [(below, np.full(n, 1 / n)), (above, w)]
    sizes = [float(n), float(1 / np.sum(w**2))]
    if subjects is not None:
        parts = [subject_means(*part, of) for part, of in zip(parts, subjects, strict=True)]
        sizes = [float(1 / np.sum(weight**2)) for _, weight in parts]
    sides = [_variance(*part, value) for part in parts]
    total = sum(sides)
    spread = sum(v**2 / max(size - 1, 1.0) for v, size in zip(sides, sizes, strict=True))
    freedom = total**2 / spread if spread > 0 else max(min(sizes) - 1, 1.0)
    return AucEstimate(value, total, freedom, min(sizes))


def auc_interval(estimate: AucEstimate, level: float = LEVEL, family: int = 1) -> Interval:
    """Interval of an AUC, in [0, 1]; it keeps a width at AUC 0 and 1.

    Wilson's of so many `trials`, with Student's quantile.

    Args:
        estimate: of `auc_estimate`.
        level: confidence level, in (0, 1).
        family: number of intervals that hold together at `level`, at least 1.

    Returns:
        lower and upper limit, in [0, 1].
    """
    quantile = -float(stdtrit(estimate.freedom, tail(level, family)))
    return score_limits(estimate.value, trials(estimate), quantile)


def trials(estimate: AucEstimate) -> float:
    """The independent trials that an AUC is worth: N, where

        1 / N = (1 - w) variance / (AUC (1 - AUC)) + w / smaller,
        w = 1 / (1 + smaller AUC (1 - AUC) / 1.5)^3.

    No shape of scores has a larger variance than AUC (1 - AUC) / smaller (Birnbaum and Klose,
    1957). w is the doubt whether the wrongly ordered images that were drawn, about smaller
    AUC (1 - AUC) of them, tell the variance: 1 where none was, 0.01 at five; its two constants are
    those tried that cover best.

    Args:
        estimate: of `auc_estimate`.

    Returns:
        their number, > 0.
    """
    p, k = estimate.value, estimate.smaller
    wrong = k * p * (1 - p)
    doubt = 1 / (1 + wrong / 1.5) ** 3
    ratio = estimate.variance / (p * (1 - p)) if wrong > 0 else 0.0
    return 1 / ((1 - doubt) * ratio + doubt / k)


def as_sure(estimate: AucEstimate, value: float) -> AucEstimate:
    """The estimate of another AUC by as many images, which is worth as many trials.

    Scores without a leak are worth at most three trials an image of the smaller side, unless many
    are equal, which says nothing of another AUC.

    Args:
        estimate: of `auc_estimate`.
        value: the other AUC, in (0, 1).

    Returns:
        its estimate.
    """
    worth = min(trials(estimate), 3 * estimate.smaller)
    return replace(estimate, value=value, variance=value * (1 - value) / worth)


def _variance(parts: FloatArray, weights: FloatArray, value: float) -> float:
    """Variance of the weighted mean of a side's components; the largest there is where one image
    carries all the weight."""
    squares = float(np.sum(weights**2))
    if squares > 1 - 1e-9:
        return value * (1 - value)
    return float(np.sum(weights**2 * (parts - value) ** 2)) / (1 - squares)


def auc_correlation(attack: Sides, control: Sides, subjects: Subjects | None = None) -> float:
    """Correlation in [-1, 1] of two AUCs of the same images (DeLong 1988); 0 where undefined.

    Args:
        attack: scores of members `(n,)` and non-members `(m,)` by one attack.
        control: scores of the same images, in the same order, by another.
        subjects: of the members and of the non-members; none: each image is its own.

    Returns:
        the correlation, in [-1, 1].
    """
    a10, a01 = placements(*attack)
    b10, b01 = placements(*control)
    if len(a10) < 2 or len(a01) < 2:
        return 0.0
    if subjects is None:
        covariance = np.cov(a10, b10) / len(a10) + np.cov(a01, b01) / len(a01)
    else:
        covariance = _between(a10, b10, subjects[0]) + _between(a01, b01, subjects[1])
    scale = float(np.sqrt(covariance[0, 0] * covariance[1, 1]))
    if not scale > 1e-15:
        return 0.0
    return float(np.clip(covariance[0, 1] / scale, -1.0, 1.0))


def _between(a: FloatArray, b: FloatArray, subjects: IntArray) -> FloatArray:
    """Covariance (2, 2) of the means of two components of the same images, between subjects."""
    even = np.full(len(a), 1 / len(a))
    means, weights = zip(*(subject_means(one, even, subjects) for one in (a, b)), strict=True)
    apart = weights[0] * (np.stack(means) - [[a.mean()], [b.mean()]])
    return np.asarray(apart @ apart.T)


def difference_interval(
    attack: Sides, control: Sides, level: float = LEVEL, family: int = 1,
    subjects: Subjects | None = None,
) -> Interval:  # fmt: skip
    """Interval of AUC(attack) - AUC(control), in [-1, 1].

    MOVER over the intervals of the two, with DeLong's correlation, because both AUCs come from the
    same images.

    Args:
        attack, control: scores of the same members (n,) and the same non-members (m,), in order.
        level: confidence level, in (0, 1).
        family: intervals that shall hold together at `level`.
        subjects: of the members and of the non-members; none: each image is its own.

    Returns:
        lower and upper limit, in [-1, 1].
    """
    a, b = (auc_estimate(*sides, subjects=subjects) for sides in (attack, control))
    a_ci, b_ci = auc_interval(a, level, family), auc_interval(b, level, family)
    correlation = auc_correlation(attack, control, subjects)
    low, high = mover_difference(a.value, a_ci, b.value, b_ci, correlation)
    return max(-1.0, low), min(1.0, high)
