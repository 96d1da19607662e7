"""Controls that need no other model: non-members who pose as members, and pixels alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedmia.evaluation.steps.scorer import Scorer
from fedmia.options.seeding import rng
from fedmia.probes.pixels import pixel_scores
from fedmia.records import FloatArray, ScoredAttack
from fedmia.statistics.subjects import halves

POSERS = (
    "Posers are half of the scored non-members, scored as if they were members: an attack that "
    "tells them from the other half reads something else than membership."
)
# What a scored attack holds beside its scores, image by image.
OF_IMAGES = (
    "features_members", "features_nonmembers", "twin_members", "twin_nonmembers", "named_members",
    "client_ids", "by_client_members", "by_client_nonmembers",
)  # fmt: skip


def posers(scored: ScoredAttack, seed: int) -> ScoredAttack:
    """Score half of the scored non-members as if they were members (posers).

    An attack must not tell the halves apart. Subjects stay whole.

    Args:
        scored: the attack on members and non-members.
        seed: root of all random streams of the run.

    Returns:
        A scored attack of non-members on both sides.
    """
    scores, of = scored.scores_nonmembers, scored.subjects_nonmembers
    sides = halves(np.arange(len(scores)) if of is None else of, rng(seed, "posers"))
    fields = dict[str, Any](dict.fromkeys(OF_IMAGES))
    for side, places in zip(("members", "nonmembers"), sides, strict=True):
        fields[f"scores_{side}"] = scores[places]
        fields[f"subjects_{side}"] = None if of is None else of[places]
    return replace(scored, **fields)


def pixels(scorer: Scorer) -> tuple[FloatArray, FloatArray]:
    """Scores (members, non-members) of a classifier that never sees a model."""
    known = scorer.known
    return scorer.split_sides(pixel_scores(known.members, known.nonmembers, scorer.candidates))
