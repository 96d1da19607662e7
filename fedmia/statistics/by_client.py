"""Which client trained on an image: how well attacks that score each client answer that.

`client_auc`: did this one client train on this image? That is the test of FedMIA (Zhu et al., CVPR
2025, arXiv 2402.06289), which knows the client that it asks about.
`matched_naming_rate`: how often does class alone name the right client? What the attack names right
beyond that rate, it learned from the image.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmia.statistics.auc import AucEstimate, auc_interval
from fedmia.statistics.intervals import (
    FloatArray,
    IntArray,
    Interval,
    mover_difference,
    score_limits,
    tail,
    wilson,
)
from fedmia.statistics.matching import effective_size

DRAWS = 1000
ROUNDING = 1e-12  # of sums of weights


def client_auc(
    members: FloatArray, nonmembers: FloatArray, weights: FloatArray, target: float,
    generator: np.random.Generator,
) -> tuple[float, Interval | None, int, bool]:  # fmt: skip
    """How well scores tell whether one given client trained on an image.

    A member is compared with the non-members asked about the same client, weighted to the class mix
    of that client's members: neither a client whose update fits all images nor one that holds few
    classes looks like a leak. So the AUC is the mean over members of that weighted share of
    non-members whose score is lower; ties count half.

    Args:
        members: (n,) score of each member for the client that holds it.
        nonmembers: (n, m) score of each non-member for that same client.
        weights: (n, m) of the non-members; rows sum to 1.
        target: false-positive rate.
        generator: of the bootstrap.

    Returns:
        the AUC, in [0, 1]; its 95 % interval, or None; how many members have a score that at most
        the target share of their non-members reach; whether that share is one non-member at least.
    """
    mine = members[:, None]
    wins = weights * ((mine > nonmembers) + (mine == nonmembers) / 2)
    fewest = min(map(effective_size, weights))
    over = (weights * (nonmembers >= mine)).sum(axis=1)
    auc = min(float(wins.sum(axis=1).mean()), 1.0)
    reached = int((over <= target + ROUNDING).sum())
    interval = interval_over_images(wins, weights, generator)
    return auc, interval, reached, fewest * target >= 1 - 1e-9


def interval_over_images(
    wins: FloatArray, weights: FloatArray, generator: np.random.Generator, draws: int = DRAWS
) -> Interval | None:
    """95 % percentile interval of sum(wins) / sum(weights), both (n, m), resampling images.

    Each draw takes n members and m non-members with replacement. A non-member comes with its
    pairs of all clients, which are not independent; each pair keeps its weight. None where a side
    has fewer than two images. Where the value is 0 or 1 every draw repeats it: `auc_interval`
    stands in, with the effective number of non-members of the client that has fewest.

    Args:
        wins: weighted wins of each pair, `(n, m)`.
        weights: weight of each pair, `(n, m)`.
        generator: of the bootstrap.
        draws: of the bootstrap.

    Returns:
        lower and upper limit, or None.
    """
    n, m = wins.shape
    if n < 2 or m < 2:
        return None
    value = wins.sum() / weights.sum()
    if min(value, 1 - value) < 1e-9:
        fewest = min(map(effective_size, weights / weights.sum(axis=1, keepdims=True)))
        smaller = min(float(n), fewest)
        at_end = AucEstimate(float(np.clip(value, 0, 1)), 0.0, max(smaller - 1, 1.0), smaller)
        return auc_interval(at_end)
    members = generator.multinomial(n, np.full(n, 1 / n), draws)
    nonmembers = generator.multinomial(m, np.full(m, 1 / m), draws).astype(np.float64)
    won = ((nonmembers @ wins.T) * members).sum(axis=1)
    totals = ((nonmembers @ weights.T) * members).sum(axis=1)
    low, high = np.quantile(won[totals > 0] / totals[totals > 0], [0.025, 0.975])
    return float(low), float(high)


def matched_naming_rate(
    right: NDArray[np.bool_], owners: IntArray, named_clients: IntArray, same: NDArray[np.bool_],
    like: IntArray,
) -> tuple[float, Interval, float, Interval]:  # fmt: skip
    """How often non-members of a member's kind are named its client.

    The value is the exact mean over pairs of a member and a non-member of its kind, all members
    weighing the same. Its variance is of a statistic of two samples (DeLong et al., 1988): members,
    and non-members within their kind, are drawn independently, each with all of its pairs. The
    interval is Wilson's at as many trials as have this variance; that of the difference is MOVER's,
    correlated over the members.

    Args:
        right: (n,) whether each member is named right, two members at least.
        owners: (n,) client that holds each member.
        named_clients: (m,) client that each non-member is named, two at least.
        same: (n, m) whether the two are alike; some non-member for each member.
        like: (m,) kind of each non-member.

    Returns:
        the rate, in [0, 1], and its 95 % interval; the members' rate less it, likewise.
    """
    n = len(owners)
    weights = same / same.sum(axis=1, keepdims=True)
    hits, parts = weights * (owners[:, None] == named_clients), weights.mean(axis=0)
    correct, null = right.astype(np.float64), hits.sum(axis=1)
    share, value = float(correct.mean()), min(float(null.mean()), 1.0)
    over_members = np.cov(correct, null) / n
    variance = over_members[1, 1] + _over_nonmembers(hits.mean(axis=0), parts, like)
    end = variance < 1e-12  # no pair differs from another
    trials = min(float(n), effective_size(parts)) if end else value * (1 - value) / variance
    ci = score_limits(value, trials, float(scipy.stats.norm.isf(tail())))
    scale = float(np.sqrt(over_members[0, 0] * variance))
    correlation = over_members[0, 1] / scale if scale > 1e-12 else 0.0
    low, high = mover_difference(share, wilson(correct.sum(), n), value, ci, correlation)
    return value, ci, share - value, (max(low, -1.0), min(high, 1.0))


def _over_nonmembers(parts: FloatArray, most: FloatArray, like: IntArray) -> float:
    """Variance of sum(parts) (m,) where non-members are drawn anew within their kinds `like`; of
    one alone of its kind the largest that a part from 0 to its `most` can have."""
    at = np.unique(like, return_inverse=True)[1]
    count = np.bincount(at)
    apart = parts - (np.bincount(at, parts) / count)[at]
    spread = np.bincount(at, apart**2) * count / np.maximum(count - 1, 1)
    return float(np.where(count > 1, spread, np.bincount(at, most**2) / 4).sum())
