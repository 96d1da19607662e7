"""From scores and truth to numbers with intervals. A higher score says member."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from fedmia.records import FloatArray, ScoredAttack
from fedmia.report.delong import auc_estimate, auc_interval
from fedmia.report.intervals import (
    LEVEL,
    Interval,
    mover_mean,
    precision_interval,
    rate_interval,
    wilson,
)
from fedmia.report.rows import AttackRow, AucRow, ThresholdRow

FPR_TARGETS = ("0.001", "0.01", "0.1")


def auc(members: FloatArray, nonmembers: FloatArray) -> float:
    """Mann-Whitney AUC with mid-ranks: P(member > non-member) + P(equal) / 2.

    Raises:
        ValueError: no scores on one side.
    """
    n, m = len(members), len(nonmembers)
    if n == 0 or m == 0:
        raise ValueError(f"no AUC from {n} members and {m} non-members")
    ranks = scipy.stats.rankdata(np.concatenate([members, nonmembers]))
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def auc_of(scored: ScoredAttack) -> float | None:
    """AUC of an attack, None where a side is empty."""
    members, nonmembers = scored.scores_members, scored.scores_nonmembers
    return auc(members, nonmembers) if len(members) and len(nonmembers) else None


def auc_ci_of(scored: ScoredAttack) -> Sequence[float] | None:
    """Its 95 % interval, None where a side is empty."""
    return auc_numbers(scored.scores_members, scored.scores_nonmembers, 1)["auc_ci"]


def roc(members: FloatArray, nonmembers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(FPR, TPR) for `score >= t`, t falling through the distinct scores, from (0, 0) to (1, 1)."""
    cuts = np.unique(np.concatenate([members, nonmembers]))[::-1]
    n, m = len(members), len(nonmembers)
    tpr = (n - np.searchsorted(np.sort(members), cuts, side="left")) / n
    fpr = (m - np.searchsorted(np.sort(nonmembers), cuts, side="left")) / m
    return np.concatenate([[0.0], fpr]), np.concatenate([[0.0], tpr])


def best_threshold(members: FloatArray, nonmembers: FloatArray) -> float | None:
    """Threshold of best balanced accuracy for `score > t`: a midpoint of neighbouring scores.

    Of several equally good ones the middle one. None where a side is empty. Where all scores are
    equal it is that score.
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
    """Best balanced accuracy over all thresholds, chosen on the very images it is measured on."""
    fpr, tpr = roc(members, nonmembers)
    return float((1 + (tpr - fpr).max()) / 2)


def tpr_at_fpr(
    members: FloatArray, nonmembers: FloatArray, target: float
) -> tuple[float, Interval, float] | None:
    """(TPR, its interval, achieved FPR): the largest TPR whose empirical FPR is at most `target`.

    Tied scores fall on one side together. The interval is of the TPR at a true FPR of `target`: it
    holds the error of the threshold, which the non-members set, as well as that of the rate (see
    `rate_interval`). None where fewer than 1 / target non-members cannot resolve the target.
    """
    n, m = len(members), len(nonmembers)
    if n == 0 or m * target < 1 - 1e-9:
        return None
    fpr, tpr = roc(members, nonmembers)
    hits, alarms = np.rint(tpr * n).astype(int), np.rint(fpr * m).astype(int)
    at = int(np.flatnonzero(fpr <= target + 1e-12)[-1])
    return float(tpr[at]), rate_interval(hits, alarms, n, m, target), float(fpr[at])


def at_threshold(
    members: FloatArray, nonmembers: FloatArray, threshold: float | None
) -> ThresholdRow:
    """Balanced accuracy, precision and recall of `score > threshold`, with 95 % intervals.

    Accuracy is (TPR + TNR) / 2 and precision TPR / (TPR + FPR): as if both were equally many, so
    that runs with other numbers of non-members compare. All null without a threshold; precision
    null where no image was called a member.
    """
    row: ThresholdRow = {
        "accuracy": None, "accuracy_ci": None, "precision": None, "precision_ci": None,
        "recall": None, "recall_ci": None,
    }  # fmt: skip
    if threshold is None:
        return row
    n, m = len(members), len(nonmembers)
    hits, alarms = int((members > threshold).sum()), int((nonmembers > threshold).sum())
    tpr, fpr = hits / n, alarms / m
    recall_ci, tnr_ci = wilson(hits, n), wilson(m - alarms, m)
    row["accuracy"] = (tpr + 1 - fpr) / 2
    row["accuracy_ci"] = mover_mean(tpr, recall_ci, 1 - fpr, tnr_ci)
    if hits + alarms:
        row["precision"] = tpr / (tpr + fpr)
        row["precision_ci"] = precision_interval(hits, n, alarms, m)
    row["recall"], row["recall_ci"] = tpr, recall_ci
    return row


def auc_numbers(members: FloatArray, nonmembers: FloatArray, family: int) -> AucRow:
    """AUC, its 95 % and simultaneous intervals and both n; nulls where a side is empty."""
    n, m = len(members), len(nonmembers)
    found = auc_estimate(members, nonmembers) if n and m else None
    return {
        "auc": None if found is None else found.value,
        "auc_ci": None if found is None else auc_interval(found),
        "auc_ci_simultaneous": None if found is None else auc_interval(found, LEVEL, family),
        "n_members": n,
        "n_nonmembers": m,
    }


def attack_row(attack: ScoredAttack, family: int) -> AttackRow:
    """One entry of the report's `attacks`. `family`: intervals that hold together.

    An attack fitted on shadows decides by their threshold, any other by the one that is best on the
    attacker's known images; `_refitted` is the latter for all. No scored image chooses one.
    """
    # float64 first: a midpoint between neighbouring float32 scores is not a float32.
    members = attack.scores_members.astype(np.float64)
    nonmembers = attack.scores_nonmembers.astype(np.float64)
    numbers = auc_numbers(members, nonmembers, family)
    usable = numbers["auc"] is not None
    refitted = best_threshold(attack.known_members, attack.known_nonmembers)
    shadow = attack.shadow_threshold
    threshold = refitted if shadow is None else shadow
    source = "shadow" if shadow is not None else None if refitted is None else "known"
    again = at_threshold(members, nonmembers, refitted if usable else None)
    rates = {t: tpr_at_fpr(members, nonmembers, float(t)) for t in FPR_TARGETS}
    return {
        "name": attack.name,
        "paper": attack.paper,
        "threat": {"access": attack.access, "vantage": attack.vantage},
        "under_attack": attack.under_attack,
        "round": attack.rounds[-1] if attack.rounds else None,
        "rounds": attack.rounds,
        **numbers,
        **at_threshold(members, nonmembers, threshold if usable else None),
        "threshold_refitted": refitted,
        "accuracy_refitted": again["accuracy"],
        "accuracy_refitted_ci": again["accuracy_ci"],
        "precision_refitted": again["precision"],
        "precision_refitted_ci": again["precision_ci"],
        "recall_refitted": again["recall"],
        "recall_refitted_ci": again["recall_ci"],
        "tpr_at_fpr": {t: found and found[0] for t, found in rates.items()},
        "tpr_at_fpr_ci": {t: found and found[1] for t, found in rates.items()},
        "fpr_achieved": {t: found and found[2] for t, found in rates.items()},
        "queries": attack.queries,
        "reading": attack.reading or None,
        "choices": attack.choices,
        "threshold": threshold,
        "threshold_source": source,
        "oracle_accuracy": oracle_accuracy(members, nonmembers) if usable else None,
    }
