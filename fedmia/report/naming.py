"""How often a client is named right by class alone: non-members of a member's class (of its
client's own, where images belong to clients) who are named that member's client. What is named
right beyond this null, the image itself told.
"""

from __future__ import annotations

import numpy as np
import scipy

from fedmia.records import RunScores, ScoredAttack
from fedmia.report.clients import effective_size
from fedmia.report.intervals import mover_difference, score_limits, tail, wilson
from fedmia.report.rows import NamedNull


def named_null(run: RunScores, attack: ScoredAttack) -> NamedNull | None:
    """The null of the clients that `attack` names, and what it names right beyond it; None without
    scores by client, or with fewer than two images of a side to compare.

    The null is the exact mean over pairs of a member and a non-member alike, members weighing the
    same; those that no non-member is like are left out. Its variance is of a statistic of two
    samples (DeLong et al., 1988): members, and non-members within their kind, are drawn
    independently, each with all of its pairs. The interval is Wilson's at as many trials as have
    this variance; that of the difference is MOVER's, correlated over the members.
    """
    ids, named, others = attack.client_ids, attack.named_members, attack.by_client_nonmembers
    kinds, like = run.alike()
    compared = np.isin(kinds, like)
    n = int(compared.sum())
    if ids is None or named is None or others is None or min(n, len(like)) < 2:
        return None
    owners, same = run.member_client[compared], kinds[compared, None] == like
    weights = same / same.sum(axis=1, keepdims=True)  # (n, m)
    hits, parts = weights * (owners[:, None] == ids[others.argmax(axis=1)]), weights.mean(axis=0)
    right, null = (named[compared] == owners).astype(np.float64), hits.sum(axis=1)
    share, value = float(right.mean()), min(float(null.mean()), 1.0)
    over_members = np.cov(right, null) / n
    variance = over_members[1, 1] + _over_nonmembers(hits.mean(axis=0), parts, like)
    end = variance < 1e-12  # no pair differs from another
    trials = min(float(n), effective_size(parts)) if end else value * (1 - value) / variance
    ci = score_limits(value, trials, float(scipy.stats.norm.isf(tail())))
    scale = float(np.sqrt(over_members[0, 0] * variance))
    correlation = over_members[0, 1] / scale if scale > 1e-12 else 0.0
    low, high = mover_difference(share, wilson(right.sum(), n), value, ci, correlation)
    return {
        "accuracy": value,
        "ci": ci,
        "difference": share - value,
        "difference_ci": (max(low, -1.0), min(high, 1.0)),
        "n_members": n,
        "alike": "class" if run.whose is None else "client",
    }


def _over_nonmembers(parts: np.ndarray, most: np.ndarray, like: np.ndarray) -> float:
    """Variance of sum(parts) (m,) where non-members are drawn anew within their kinds `like`; of
    one alone of its kind the largest that a part from 0 to its `most` can have."""
    at = np.unique(like, return_inverse=True)[1]
    count = np.bincount(at)
    apart = parts - (np.bincount(at, parts) / count)[at]
    spread = np.bincount(at, apart**2) * count / np.maximum(count - 1, 1)
    return float(np.where(count > 1, spread, np.bincount(at, most**2) / 4).sum())
