"""Subjects of a scorer: a threshold is never chosen on a subject that was fitted on."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known
from fedmia.evaluation.steps.scorer import Scorer
from fedmia.seeding import rng
from fedmia.statistics.subjects import halves, nearest_end
from fedmia.threat import Threat


@dataclass
class Recalls(Attack):
    """Knows again whose images it was fitted on: a pixel says whose an image is."""

    paper: ClassVar[str] = ""
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("features",)
    learns: ClassVar[bool] = True  # type: ignore[assignment]

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self.seen = set(known.both()[0][:, 0, 0, 0].tolist())

    def score(self, view: Any, images: Tensor) -> np.ndarray:
        whose = images[:, 0, 0, 0].tolist()
        return np.array([one / 1000 + (one in self.seen) for one in whose])


class View:
    """A view of nothing."""

    threat, queries = Threat("black_box", "outsider"), 0

    def unmetered(self) -> nullcontext[None]:
        return nullcontext()


def test_threshold__no_subject_is_fitted_and_scored() -> None:
    def pictures(of: np.ndarray) -> Tensor:
        return torch.from_numpy(of.astype(np.uint8))[:, None, None, None].expand(-1, 3, 2, 2)

    members, others = np.repeat(np.arange(6), 3), np.repeat(np.arange(6, 12), 3)
    images = Known(pictures(members), pictures(others), subjects=(members, others))
    scorer = Scorer(
        images, pictures(members + 20), pictures(others + 20), 0, lambda name: Recalls()
    )
    view: Any = View()
    scored = scorer.score_attack("recalls", view)
    known = np.concatenate([scored.known_members, scored.known_nonmembers])
    # What was not fitted on lies under all candidates, what was fitted on over them.
    assert known.tolist() == [scored.scores_members.min()] * 36
    assert scored.fitted_on == 36


def test_halves__of_images_alone_are_those_of_a_permutation() -> None:
    first, rest = halves(np.arange(11), rng(3, "x"))
    order = rng(3, "x").permutation(11)
    assert first.tolist() == sorted(order[:5]) and rest.tolist() == sorted(order[5:])


def test_nearest_end__counts_images_and_keeps_subjects() -> None:
    assert [nearest_end([5, 5, 5, 5], n, 1, 1) for n in (0, 6, 8, 99)] == [1, 1, 2, 3]
    assert nearest_end([1] * 9, 4, 0, 0) == 4
