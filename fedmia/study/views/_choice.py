"""Which point leaks least within 5 % of the undefended kNN, and which it cannot be told from.

Each candidate is compared with the least leaking one over models of equal seeds: a one-sided paired
t test of the AUCs of their best attacks. With K candidates each test has level 0.05 / (K - 1); then
those that the tests do not exclude hold the truly least leaking one with 95 % confidence, though
the least one was chosen on the same models (Hsu 1984, Ann. Statist. 12:1136).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from fedmia.statistics.intervals import LEVEL
from fedmia.statistics.spread import p_value
from fedmia.study.points import change, known, paired_differences
from fedmia.study.rows import DefencePointRow, SeedValues
from fedmia.study.words import leaks_measurably

WITHIN = 0.05


def choose(points: Sequence[DefencePointRow]) -> list[DefencePointRow]:
    """The points with what is chosen among them.

    A defence of which a run failed or is void is no candidate: its mean is that of the runs that
    went well. Nothing is chosen where the undefended models do not measurably leak; the least
    leaking point and those like it are, where seeds tell all of them from no defence.

    Args:
        points: the undefended one first.

    Returns:
        The same points, `candidate`, `choice`, `chosen` and `spare` of each filled in.
    """
    bare = points[0]
    floor = _floor(bare.knn_by_seed)
    able = [_is_candidate(point, bare, floor) for point in points]
    points = [replace(point, candidate=one) for point, one in zip(points, able, strict=True)]
    candidates = [point for point in points if point.candidate]
    if len(candidates) < 2 or not leaks_measurably(bare):
        return points
    # Of points at 0.5 or under it the one of most use.
    least = min(
        candidates,
        key=lambda point: (
            at_least_half(point.leak.auc.mean or 0.0),
            -fmean(known(point.knn_by_seed.values())),
        ),
    )
    level = (1 - LEVEL) / (len(candidates) - 1)
    choices = {
        point.point: "least" if point is least else "alike"
        for point in candidates
        if point is least or not _leaks_more(point, least, level)
    }
    told_from_bare = bare.point not in choices
    spare = change(least.knn_by_seed, floor)
    return [
        replace(
            point,
            choice=choice,
            chosen=bool(choice) and told_from_bare,
            spare=spare if choice == "least" else None,
        )
        for point in points
        for choice in [choices.get(point.point, "")]
    ]


def _is_candidate(point: DefencePointRow, bare: DefencePointRow, floor: SeedValues) -> bool:
    """Whether a point keeps enough use in the mean, of runs that all count."""
    if not (bare.best and point.best):
        return False
    if point.point != bare.point and (point.failed or point.void):
        return False
    spare = known(paired_differences(point.knn_by_seed, floor))
    return bool(spare) and fmean(spare) >= 0


def at_least_half(auc: float) -> float:
    """An AUC under 0.5 counts as 0.5: guessing worse than chance is no less of a leak."""
    return max(auc, 0.5)


def _floor(undefended: SeedValues) -> SeedValues:
    """The least kNN that is kept, by seed."""
    return {k: (1 - WITHIN) * v for k, v in undefended.items() if not isinstance(v, str)}


def _leaks_more(one: DefencePointRow, least: DefencePointRow, level: float) -> bool:
    """Whether models tell that `one` leaks more than the least leaking point."""
    more = known(paired_differences(one.leak.by_seed, least.leak.by_seed))
    p = p_value(more)
    return p is not None and fmean(more) > 0 and p / 2 <= level
