"""Decisions at a threshold of a score: accuracy, precision and recall, and the TPR at an FPR.

Example:
    >>> members = np.array([0.9, 0.8, 0.4])
    >>> nonmembers = np.array([0.7, 0.3, 0.2, 0.1])
    >>> tpr, interval, fpr = tpr_at_fpr(members, nonmembers, target=0.25)
    >>> tpr, fpr
    (1.0, 0.25)
    >>> best_threshold(members, nonmembers)
    0.35
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fedmia.statistics.intervals import (
    FloatArray,
    Interval,
    mover_mean,
    precision_interval,
    rate_interval,
    tail,
    wilson,
)
from fedmia.statistics.subjects import Subjects, effective_trials


def roc(members: FloatArray, nonmembers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(FPR, TPR) for `score >= t`, t falling through the distinct scores, from (0, 0) to (1, 1).

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.

    Returns:
        false-positive rates and true-positive rates, `(k + 1,)` each, for k distinct scores.
    """
    cuts = np.unique(np.concatenate([members, nonmembers]))[::-1]
    n, m = len(members), len(nonmembers)
    tpr = (n - np.searchsorted(np.sort(members), cuts, side="left")) / n
    fpr = (m - np.searchsorted(np.sort(nonmembers), cuts, side="left")) / m
    return np.concatenate([[0.0], fpr]), np.concatenate([[0.0], tpr])


def best_threshold(members: FloatArray, nonmembers: FloatArray) -> float | None:
    """Threshold of best balanced accuracy for `score > t`: a midpoint of neighbouring scores.

    Of several equally good ones the middle one. None where a side is empty. Where all scores are
    equal it is that score.

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.

    Returns:
        the threshold, or None.
    """
    if len(members) == 0 or len(nonmembers) == 0:
        return None
    levels = np.unique(np.concatenate([members, nonmembers])).astype(np.float64)
    if len(levels) == 1:
        return float(levels[0])
    cuts = levels[:-1] + np.diff(levels) / 2
    # Whole numbers, so that ties are ties: m * n * (TPR - FPR).
    hits = len(members) - np.searchsorted(np.sort(members), cuts, side="right")
    alarms = len(nonmembers) - np.searchsorted(np.sort(nonmembers), cuts, side="right")
    gain = hits * len(nonmembers) - alarms * len(members)
    best = np.flatnonzero(gain == gain.max())
    return float(cuts[best[(len(best) - 1) // 2]])


def oracle_accuracy(members: FloatArray, nonmembers: FloatArray) -> float:
    """Best balanced accuracy over all thresholds, chosen on the very images it is measured on.

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.

    Returns:
        balanced accuracy, in [0.5, 1].
    """
    fpr, tpr = roc(members, nonmembers)
    return float((1 + (tpr - fpr).max()) / 2)


def tpr_at_fpr(
    members: FloatArray, nonmembers: FloatArray, target: float, subjects: Subjects | None = None,
    family: int = 1,
) -> tuple[float, Interval, float] | None:  # fmt: skip
    """(TPR, its interval, achieved FPR): the largest TPR whose empirical FPR is at most `target`.

    Tied scores fall on one side together. The interval is of the TPR at a true FPR of `target`: it
    holds the error of the threshold, which the non-members set, as well as that of the rate (see
    `rate_interval`). None where fewer than 1 / target non-members cannot resolve the target.

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.
        target: largest false-positive rate, in (0, 1]; 0.01 is common.
        subjects: of the members and of the non-members; none: each image is its own.
        family: intervals that hold together at LEVEL.

    Returns:
        TPR, its interval and the achieved FPR; or None.

    Raises:
        ValueError: `target` outside (0, 1].
    """
    if not 0 < target <= 1:
        raise ValueError(f"target must be in (0, 1], got {target}")
    n, m = len(members), len(nonmembers)
    if n == 0 or m * target < 1 - 1e-9:
        return None
    fpr, tpr = roc(members, nonmembers)
    at = int(np.flatnonzero(fpr <= target + 1e-12)[-1])
    (interval,) = _limits(members, nonmembers, [target], subjects, family)
    return float(tpr[at]), interval, float(fpr[at])


def precision_at_prior(tpr: float, fpr: float, prior: float) -> float:
    """Share of members among the records that an attack names: its positive predictive value.

    It rises with the TPR, so the ends of an interval of the TPR at a true FPR of `fpr` (see
    `tpr_at_fpr`) give those of an interval of it at the same level.

    Args:
        tpr: true-positive rate, in [0, 1].
        fpr: false-positive rate, in (0, 1].
        prior: share of members among the records that are asked about, in (0, 1).

    Returns:
        tpr * prior / (tpr * prior + fpr * (1 - prior)), in [0, 1); of a guess, TPR = FPR, the
        prior.

    Raises:
        ValueError: `fpr` or `prior` out of its range.
    """
    if not 0 < fpr <= 1:
        raise ValueError(f"fpr must be in (0, 1], got {fpr}")
    if not 0 < prior < 1:
        raise ValueError(f"prior must be in (0, 1), got {prior}")
    hits, alarms = tpr * prior, fpr * (1 - prior)
    return hits / (hits + alarms)


def tpr_band(
    members: FloatArray, nonmembers: FloatArray, targets: FloatArray,
    subjects: Subjects | None = None,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Pointwise limits of the TPR at true FPRs: a band around a ROC curve.

    At each FPR alone they are the interval of `tpr_at_fpr`, made wider where they would fall though
    the TPR cannot: effective trials of subjects differ from threshold to threshold.

    Args:
        members: scores of the members, `(n,)`, at least one.
        nonmembers: scores of the non-members, `(m,)`, at least one.
        targets: true false-positive rates, `(k,)` in (0, 1], rising.
        subjects: of the members and of the non-members; none: each image is its own.

    Returns:
        lower and upper limits, `(k,)` each, in [0, 1] and never falling.
    """
    low, high = np.transpose(_limits(members, nonmembers, targets.tolist(), subjects))
    return np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)


def _limits(
    members: FloatArray, nonmembers: FloatArray, targets: Sequence[float],
    subjects: Subjects | None, family: int = 1,
) -> list[Interval]:  # fmt: skip
    """The interval of the TPR at each true FPR."""
    n, m = len(members), len(nonmembers)
    fpr, tpr = roc(members, nonmembers)
    hits, alarms = np.rint(tpr * n).astype(int), np.rint(fpr * m).astype(int)
    worth = None if subjects is None else partial(_worth, (members, nonmembers), subjects)
    return [rate_interval(hits, alarms, n, m, target, worth, family) for target in targets]


def _worth(
    scores: tuple[FloatArray, FloatArray], subjects: Subjects, side: int, at: int, end: float
) -> float:
    """Trials that a side's images are worth at the `at`th threshold of `roc`."""
    cuts = np.r_[np.inf, np.unique(np.concatenate(scores))[::-1]]
    return effective_trials(scores[side] >= cuts[at], subjects[side], end)


def decide_at_threshold(
    members: FloatArray, nonmembers: FloatArray, threshold: float | None,
    subjects: Subjects | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Balanced accuracy, precision and recall of `score > threshold`, with 95 % intervals.

    Accuracy is (TPR + TNR) / 2 and precision TPR / (TPR + FPR): as if both were equally many, so
    that runs with other numbers of non-members compare. All null without a threshold; precision
    null where no image was called a member.

    Args:
        members: scores of the members, `(n,)`.
        nonmembers: scores of the non-members, `(m,)`.
        threshold: a score above it decides for member; None: no decision.
        subjects: of the members and of the non-members; none: each image is its own.

    Returns:
        the rates by name and, with `_ci` behind it, their intervals.
    """
    if threshold is None:
        names = ("accuracy", "precision", "recall")
        return {f"{name}{end}": None for name in names for end in ("", "_ci")}
    n, m = len(members), len(nonmembers)
    hits, alarms = int((members > threshold).sum()), int((nonmembers > threshold).sum())
    tpr, fpr = hits / n, alarms / m
    counts, trials = (float(hits), float(alarms)), (float(n), float(m))
    if subjects is not None:  # trials that the images are worth
        over, end = (members > threshold, nonmembers > threshold), tail()
        trials = (
            effective_trials(over[0], subjects[0], end),
            effective_trials(over[1], subjects[1], end),
        )
        counts = tpr * trials[0], fpr * trials[1]
    recall_ci = wilson(counts[0], trials[0])
    tnr_ci = wilson(trials[1] - counts[1], trials[1])
    called = hits + alarms > 0
    rates = counts[0], trials[0], counts[1], trials[1]
    return {
        "accuracy": (tpr + 1 - fpr) / 2,
        "accuracy_ci": mover_mean(tpr, recall_ci, 1 - fpr, tnr_ci),
        "precision": tpr / (tpr + fpr) if called else None,
        "precision_ci": precision_interval(*rates) if called else None,
        "recall": tpr,
        "recall_ci": recall_ci,
    }
