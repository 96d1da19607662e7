"""Are these B images members? How well each attack tells sets of one kind apart."""

from __future__ import annotations

from fedmia.report.intervals import LEVEL, auc_interval
from fedmia.report.metrics import auc
from fedmia.report.paired import difference_interval
from fedmia.report.rows import SetControl, SetRow
from fedmia.results import FloatArray, ScoredAttack, SetScores


def set_row(sets: SetScores, family: int) -> SetRow:
    """One entry of the report's `sets`; `family`: its rows, whose intervals hold together.

    Raises:
        ValueError: no sets on one side.
    """
    value, n, m = auc(sets.members, sets.nonmembers), len(sets.members), len(sets.nonmembers)
    return {
        "attack": sets.attack,
        "judged": sets.judged,
        "size": sets.size,
        "n_member_sets": n,
        "n_nonmember_sets": m,
        "auc": value,
        "auc_ci": auc_interval(value, n, m),
        "auc_ci_simultaneous": auc_interval(value, n, m, LEVEL, family),
        "control": _control(sets, value),
    }


def _control(sets: SetScores, value: float) -> SetControl | None:
    members, nonmembers = sets.control_members, sets.control_nonmembers
    if sets.control is None or members is None or nonmembers is None:
        return None
    own = auc(members, nonmembers)
    here = _scored(sets.attack, sets.members, sets.nonmembers)
    return {
        "name": sets.control,
        "auc": own,
        "auc_ci": auc_interval(own, len(members), len(nonmembers)),
        "difference": value - own,
        "difference_ci": difference_interval(here, _scored(sets.control, members, nonmembers)),
    }


def _scored(name: str, members: FloatArray, nonmembers: FloatArray) -> ScoredAttack:
    return ScoredAttack(name, "", "", "", members, nonmembers)
