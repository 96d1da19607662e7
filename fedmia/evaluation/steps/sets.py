"""The paper's question, "are these B images members?": scores of sets under every attack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedmia.data.sets import ImageSets
from fedmia.records import ALONE, MEAN, FloatArray, Pair, ScoredAttack, SetScores

NULLS = ("placebo", "untrained")  # controls in which nothing can leak, the closer one first


class _Control(NamedTuple):
    name: str
    scored: ScoredAttack


def set_scores(
    sets: ImageSets,
    attacks: Sequence[ScoredAttack],
    controls: Mapping[str, Sequence[ScoredAttack]],
    pairs: Sequence[Pair] = (),
) -> list[SetScores]:
    """Each attack's mean score of the images of a set, beside its control on the same sets; then
    what attacks say of the same sets that they judged as wholes, beside their twin.

    The control of a mean is the attack's first paired one, else its placebo, else the untrained
    model.
    """
    if not len(sets.members) or not len(sets.nonmembers):
        return []
    beside: dict[str, _Control] = {}
    for null in NULLS:
        for control in controls.get(null, ()):
            beside.setdefault(control.name, _Control(null, control))
    twins = {p.attack.name: p.control for p in reversed(pairs)}
    beside |= {name: _Control(twin.name, twin) for name, twin in twins.items()}
    means = [_averaged(sets, scored, beside.get(scored.name)) for scored in attacks]
    whole = [a for a in attacks if a.sets_members is not None]
    return means + [_alone(sets, a, twins.get(a.name)) for a in whole]


def _averaged(sets: ImageSets, scored: ScoredAttack, control: _Control | None) -> SetScores:
    def means(of: ScoredAttack) -> tuple[FloatArray, FloatArray]:
        sides = (of.scores_members[sets.members], of.scores_nonmembers[sets.nonmembers])
        return sides[0].mean(axis=1), sides[1].mean(axis=1)

    members, nonmembers = means(scored)
    found = SetScores(scored.name, MEAN, sets.size, members, nonmembers)
    if control is None:
        return found
    members, nonmembers = means(control.scored)
    return replace(
        found, control=control.name, control_members=members, control_nonmembers=nonmembers
    )


def _alone(sets: ImageSets, scored: ScoredAttack, twin: ScoredAttack | None) -> SetScores:
    mine, others = scored.sets_members, scored.sets_nonmembers
    assert mine is not None and others is not None
    return SetScores(
        attack=scored.name,
        judged=ALONE,
        size=sets.size,
        members=mine[:, 0],
        nonmembers=others[:, 0],
        control=twin.name if twin else f"{scored.name}-zero",
        control_members=mine[:, 1],
        control_nonmembers=others[:, 1],
    )
