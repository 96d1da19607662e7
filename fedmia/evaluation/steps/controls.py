"""The control that needs no model: pixels alone."""

from __future__ import annotations

from fedmia.evaluation.steps.scorer import Scorer
from fedmia.probes.pixels import pixel_scores
from fedmia.records import FloatArray


def pixels(scorer: Scorer) -> tuple[FloatArray, FloatArray]:
    """Scores (members, non-members) of a classifier that never sees a model."""
    known = scorer.known
    return scorer.split_sides(pixel_scores(known.members, known.nonmembers, scorer.candidates))
