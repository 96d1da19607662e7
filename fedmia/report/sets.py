"""Are these B images members? How well each attack tells sets of one kind apart."""

from __future__ import annotations

from fedmia.records import SetScores
from fedmia.records.attack_rows import SetControl, SetRow
from fedmia.records.fields import row_of
from fedmia.report.metrics import auc_fields
from fedmia.statistics.auc import AucEstimate, auc_estimate, auc_interval, difference_interval


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
        controls=[_control(sets, estimate, name) for name in sets.controls],
        **auc_fields(estimate, family),
    )


def _control(sets: SetScores, estimate: AucEstimate, name: str) -> SetControl:
    sides = sets.controls[name]
    own = auc_estimate(*sides)
    return SetControl(
        name=name,
        auc=own.value,
        auc_ci=auc_interval(own),
        difference=estimate.value - own.value,
        difference_ci=difference_interval((sets.members, sets.nonmembers), sides),
    )
