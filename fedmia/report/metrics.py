"""From scores and truth to numbers with intervals. A higher score says member."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmia.records import FloatArray, ScoredAttack
from fedmia.records.attack_rows import AttackRow, AucRow, OverControlRow
from fedmia.records.fields import row_of
from fedmia.statistics.auc import AucEstimate, auc_estimate, auc_interval
from fedmia.statistics.intervals import ONE_SIDED
from fedmia.statistics.subjects import Subjects
from fedmia.statistics.thresholds import (
    best_threshold,
    decide_at_threshold,
    oracle_accuracy,
    tpr_at_fpr,
)

FPR_TARGETS = ("0.001", "0.01", "0.1")


def auc_numbers(
    members: FloatArray, nonmembers: FloatArray, family: int, subjects: Subjects | None = None,
    *, tested: bool = False,
) -> AucRow:  # fmt: skip
    """AUC, its 95 % and simultaneous intervals and both n; nulls where a side is empty.

    Args:
        members: (n,) scores.
        nonmembers: (m,) scores.
        family: number of simultaneous intervals.
        subjects: of the images; None: each image is its own.
        tested: whether it may establish a leak, by a one-sided limit.

    Returns:
        The row of `report.json`.
    """
    more: dict[str, float] = {"n_members": len(members), "n_nonmembers": len(nonmembers)}
    if not all(more.values()):
        return row_of(AucRow, None, **more)
    estimate = auc_estimate(members, nonmembers, subjects=subjects)
    if subjects is not None:
        alone = auc_estimate(members, nonmembers).variance
        more["n_member_subjects"], more["n_nonmember_subjects"] = (
            len(np.unique(one)) for one in subjects
        )
        more["design_effect"] = max(estimate.variance / alone, 1.0) if alone > 0 else 1.0
    if tested:
        more["lower_limit"], _ = auc_interval(estimate, ONE_SIDED, family)
    return row_of(AucRow, None, **auc_fields(estimate, family), **more)


def auc_fields(estimate: AucEstimate, family: int) -> dict[str, Any]:
    """AUC, its simultaneous and its 95 % interval, as all rows name them.

    Args:
        estimate: the AUC.
        family: number of simultaneous intervals.

    Returns:
        Field -> value.
    """
    low, high = auc_interval(estimate, family=family)
    return {"auc": estimate.value, "low": low, "high": high, "auc_ci": auc_interval(estimate)}


def attack_row(
    attack: ScoredAttack, family: int, over: OverControlRow | None = None, *, tested: bool = False
) -> AttackRow:
    """One entry of the report's `attacks`, or of its controls.

    An attack fitted on shadows decides by their threshold, any other by the one that is best on the
    attacker's known images; `_refitted` is the latter for all. No scored image chooses one.

    Args:
        attack: its scores.
        family: number of simultaneous intervals.
        over: what it adds to its own control; None: it has none, or is one.
        tested: whether it may establish a leak, by a one-sided limit.

    Returns:
        The row of `report.json`.
    """
    # float64 first: a midpoint between neighbouring float32 scores is not a float32.
    members = attack.scores_members.astype(np.float64)
    nonmembers = attack.scores_nonmembers.astype(np.float64)
    of = attack.subjects
    numbers = auc_numbers(members, nonmembers, family, of, tested=tested)
    usable = numbers.auc is not None
    refitted = best_threshold(attack.known_members, attack.known_nonmembers)
    shadow = attack.shadow_threshold
    threshold = refitted if shadow is None else shadow
    source = "shadow" if shadow is not None else None if refitted is None else "known"
    decided, again = (
        decide_at_threshold(members, nonmembers, at if usable else None, of)
        for at in (threshold, refitted)
    )
    rates = {t: tpr_at_fpr(members, nonmembers, float(t), of) for t in FPR_TARGETS}
    return row_of(
        AttackRow,
        attack,
        round=attack.rounds[-1] if attack.rounds else None,
        **vars(numbers),
        **decided,
        threshold_refitted=refitted,
        **{refitted_name(name): value for name, value in again.items()},
        tpr_at_fpr={t: rate and rate[0] for t, rate in rates.items()},
        tpr_at_fpr_ci={t: rate and rate[1] for t, rate in rates.items()},
        fpr_achieved={t: rate and rate[2] for t, rate in rates.items()},
        reading=attack.reading or None,
        threshold=threshold,
        threshold_source=source,
        oracle_accuracy=oracle_accuracy(members, nonmembers) if usable else None,
        fitted_on=attack.fitted_on or None,
        over_control=over,
    )


def refitted_name(name: str) -> str:
    """`accuracy_refitted_ci` of `accuracy_ci`."""
    kind, _, end = name.partition("_")
    return f"{kind}_refitted{end and f'_{end}'}"
