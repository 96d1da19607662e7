"""From scores and truth to every number of an attack: alone, over controls, of pairs, of sets.

A higher score says member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedmia.recording.branches import EARLIER, LAST
from fedmia.records import Evaluation, FloatArray, Pair, ScoredAttack, SetScores
from fedmia.records.attack_rows import (
    AttackRow,
    AucRow,
    OverControlRow,
    PairedRow,
    SetControl,
    SetRow,
)
from fedmia.records.fields import row_of
from fedmia.statistics.auc import (
    AucEstimate,
    auc,
    auc_estimate,
    auc_interval,
    difference_interval,
    one_score_count,
)
from fedmia.statistics.intervals import LEVEL, ONE_SIDED, Interval
from fedmia.statistics.subjects import Subjects
from fedmia.statistics.thresholds import (
    best_threshold,
    decide_at_threshold,
    oracle_accuracy,
    precision_at_prior,
    tpr_at_fpr,
)

FPR_TARGETS = ("0.001", "0.01", "0.1")
# The AUC and the intervals of a row -> those of a pair's control.
OF_CONTROL = {
    "auc": "auc_control",
    "auc_ci": "auc_control_ci",
    "low": "auc_control_low",
    "high": "auc_control_high",
}
OWN = ("placebo", "untrained", EARLIER, LAST)  # controls on the same images


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
    attack: ScoredAttack, family: int, over: OverControlRow | None = None, *,
    tested: bool = False, prior: float | None = None,
) -> AttackRow:  # fmt: skip
    """One entry of the report's `attacks`, or of its controls.

    An attack fitted on shadows decides by their threshold, any other by the one that is best on the
    attacker's known images; `_refitted` is the latter for all. No scored image chooses one.

    Args:
        attack: its scores.
        family: number of simultaneous intervals.
        over: what it adds to its own control; None: it has none, or is one.
        tested: whether it may establish a leak, by a one-sided limit.
        prior: share of members among the records that an attacker asks about; None: not known.

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
        **_at_prior(rates, prior),
        reading=attack.reading or None,
        threshold=threshold,
        threshold_source=source,
        oracle_accuracy=oracle_accuracy(members, nonmembers) if usable else None,
        fitted_on=attack.fitted_on or None,
        one_score=one_score_count(members, nonmembers),
        over_control=over,
    )


def _at_prior(
    rates: Mapping[str, tuple[float, Interval, float] | None], prior: float | None
) -> dict[str, dict[str, Any]]:
    """Precision at each true FPR, of the TPR and of the ends of its interval."""
    if prior is None:
        return {}
    values, intervals = dict[str, Any](), dict[str, Any]()
    for target, rate in rates.items():
        right = partial(precision_at_prior, fpr=float(target), prior=prior)
        values[target] = rate and right(rate[0])
        intervals[target] = rate and tuple(map(right, rate[1]))
    return {"precision_at_prior": values, "precision_at_prior_ci": intervals}


def refitted_name(name: str) -> str:
    """`accuracy_refitted_ci` of `accuracy_ci`."""
    kind, _, end = name.partition("_")
    return f"{kind}_refitted{end and f'_{end}'}"


def paired_rows(pairs: Sequence[Pair], family: int) -> list[PairedRow]:
    """The report's `paired`.

    Args:
        pairs: attacks and their paired controls.
        family: number of simultaneous intervals.

    Returns:
        The rows of `report.json`.
    """
    return [_paired_row(pair, family) for pair in pairs]


def _paired_row(pair: Pair, family: int) -> PairedRow:
    attack, control = pair.attack, pair.control
    n, m = map(len, attack.sides)
    row = {"attack": attack.name, "control": control.name, "n_members": n, "n_nonmembers": m}
    row["over"] = pair.over
    if n == 0 or m == 0:
        return row_of(PairedRow, None, **row)
    both, of = (attack.sides, control.sides), attack.subjects
    a, b = (auc_estimate(*one, subjects=of) for one in both)
    difference, together = a.value - b.value, difference_interval(*both, LEVEL, family, of)
    return row_of(
        PairedRow,
        None,
        **row,
        difference=difference,
        low=together[0],
        high=together[1],
        ci=difference_interval(*both, subjects=of),
        auc=a.value,
        **{OF_CONTROL[name]: value for name, value in auc_fields(b, family).items()},
    )


def over_control(attack: ScoredAttack, run: Evaluation, family: int) -> OverControlRow | None:
    """What an attack adds to its own control, None where it has none on the same images.

    Where chance alone does not part the sides (`Evaluation.drawn`), it must add to each of its
    controls. A placebo is then trained on images of the non-members' kind: what looks trained on to
    such an encoder is on the other side, so the attack must lie over the reversed placebo, too.

    Args:
        attack: the attack.
        run: whose controls they are.
        family: number of simultaneous tests.

    Returns:
        The row of `report.json`.
    """
    nulls = [
        (name, own.sides)
        for name in OWN
        for own in run.controls.get(name, ())
        if own.name == attack.name and min(map(len, own.sides)) > 0
        if [*map(len, own.sides)] == [*map(len, attack.sides)]
    ]
    if run.drawn:
        nulls = nulls[:1]
    else:
        nulls += [
            (f"reversed {name}", (-inside, -outside))
            for name, (inside, outside) in nulls
            if name == "placebo"
        ]
    rows = [_over(attack, null, run, family, len(nulls)) for null in nulls]
    return min(rows, key=lambda row: row.lower_limit, default=None)


def _over(
    attack: ScoredAttack, null: tuple[str, tuple[FloatArray, FloatArray]], run: Evaluation,
    family: int, controls: int,
) -> OverControlRow:  # fmt: skip
    """What an attack adds to one control. A run's members are drawn at random, so there the
    untrained encoder is asked at the level of one attack; a placebo costs no power."""
    name, sides = null
    tests = 1 if name == "untrained" and run.drawn else family
    both = attack.sides, sides
    low, high = difference_interval(*both, LEVEL, family, attack.subjects)
    limit, _ = difference_interval(*both, ONE_SIDED, tests, attack.subjects)
    return row_of(
        OverControlRow, None, control=name, difference=auc(*attack.sides) - auc(*sides), low=low,
        high=high, lower_limit=limit, tests=tests, n_controls=controls,
    )  # fmt: skip


def set_row(sets: SetScores, family: int) -> SetRow:
    """One entry of the report's `sets`; `family`: its rows, whose intervals hold together.

    Args:
        sets: scores of sets of members and of non-members.
        family: number of rows, for simultaneous intervals.

    Returns:
        The row of `report.json`.

    Raises:
        ValueError: no sets on one side.
    """
    estimate = auc_estimate(sets.members, sets.nonmembers)
    return row_of(
        SetRow,
        sets,
        n_member_sets=len(sets.members),
        n_nonmember_sets=len(sets.nonmembers),
        controls=[_set_control(sets, estimate, name) for name in sets.controls],
        **auc_fields(estimate, family),
    )


def _set_control(sets: SetScores, estimate: AucEstimate, name: str) -> SetControl:
    sides = sets.controls[name]
    own = auc_estimate(*sides)
    return SetControl(
        name=name,
        auc=own.value,
        auc_ci=auc_interval(own),
        difference=estimate.value - own.value,
        difference_ci=difference_interval((sets.members, sets.nonmembers), sides),
    )
