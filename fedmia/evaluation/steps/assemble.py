"""All that a report is made of, put together once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmia.data.sets import ImageSets
from fedmia.evaluation.steps.sets import set_scores
from fedmia.records import Evaluation, Pair, ScoredAttack, twins
from fedmia.runtime.environment import describe
from fedmia.settings.tree import to_tree


def assemble(
    settings: Any,
    *,
    attacks: Sequence[ScoredAttack] = (),
    controls: Mapping[str, Sequence[ScoredAttack]] = {},
    pairs: Sequence[Pair] = (),
    sets: ImageSets | None = None,
    **rest: Any,
) -> Evaluation:
    """Put scores, settings and machine together, with what follows from the scores.

    Args:
        settings: of the run or the audit.
        attacks: the scored attacks.
        controls: scores of the controls, by name.
        pairs: attacks beside their controls; those beside themselves without their act are added.
        sets: of the scored images, to be judged as wholes; None: none are.
        rest: other fields of `Evaluation`.

    Returns:
        All that the report shows.
    """
    environment, pairs = describe(), [*pairs, *twins(attacks)]
    return Evaluation(
        seed=settings.seed,
        attacks=attacks,
        controls=controls,
        pairs=pairs,
        sets=[] if sets is None else set_scores(sets, attacks, controls, pairs),
        versions=environment["versions"] | {"commit": environment["commit"]},
        hardware=environment["hardware"],
        **{"config": to_tree(settings), **rest},
    )
