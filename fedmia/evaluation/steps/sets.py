"""The paper's question, "are these B images members?": scores of sets under every attack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmia.data.sets import ImageSets
from fedmia.records import ALONE, MEAN, FloatArray, Pair, ScoredAttack, SetScores

NULLS = ("placebo", "untrained")  # controls in which nothing can leak, the closer one first


def set_scores(
    sets: ImageSets,
    attacks: Sequence[ScoredAttack],
    controls: Mapping[str, Sequence[ScoredAttack]],
    pairs: Sequence[Pair] = (),
) -> list[SetScores]:
    """Each attack's mean score of the images of a set, beside its control on the same sets; then
    what attacks say of the same sets that they judged as wholes, beside their twin.

    The controls of a mean are the attack's paired ones, else its placebo, else the untrained model.

    Args:
        sets: which images form a set.
        attacks: the scored attacks.
        controls: scores of the controls, by name.
        pairs: each attack with its control.

    Returns:
        One row for each attack that has a score of sets.
    """
    if not all(map(len, sets)):
        return []
    size = sets[0].shape[1]
    beside: dict[str, dict[str, ScoredAttack]] = {}
    for null in NULLS:
        for control in controls.get(null, ()):
            beside.setdefault(control.name, {null: control})
    twins: dict[str, dict[str, ScoredAttack]] = {}
    for pair in pairs:
        twins.setdefault(pair.attack.name, {})[pair.control.name] = pair.control
    beside |= twins
    rows = []
    for scored in attacks:
        near = {name: _means(sets, one) for name, one in beside.get(scored.name, {}).items()}
        rows.append(SetScores(scored.name, MEAN, size, *_means(sets, scored), near))
    for scored in attacks:
        mine, others = scored.sets_members, scored.sets_nonmembers
        if mine is None or others is None:
            continue
        names = [*twins.get(scored.name, [f"{scored.name}-zero"])]
        columns = zip(mine.T[1:], others.T[1:], strict=True)
        own = dict(zip(names, columns, strict=False))  # an act in rounds has its own twin alone
        rows.append(SetScores(scored.name, ALONE, size, mine[:, 0], others[:, 0], own))
    return rows


def _means(sets: ImageSets, of: ScoredAttack) -> tuple[FloatArray, FloatArray]:
    """Mean scores of the sets of members and of those of non-members."""
    sides = of.scores_members[sets[0]], of.scores_nonmembers[sets[1]]
    return sides[0].mean(axis=1), sides[1].mean(axis=1)
