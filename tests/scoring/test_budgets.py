"""A budget of queries covers the fit, its threshold and the scores: an attack of known cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.evaluation.budgets import LEAST_KNOWN, afford
from fedmia.settings.errors import InputError

IMAGES, KNOWN = 100, 50  # scored images, known images a side
FIXED, FIT, SCORE = 7, 3, 5  # queries of a fit, of it for each known image, of a score


class Costly:
    """An attack that asks for as many queries as it says."""

    shadow_threshold = None

    def __init__(self, learns: bool) -> None:
        self.learns = learns

    def fit(self, view: Any, known: Known, rng: object) -> None:
        view.queries += FIXED + FIT * (len(known.members) + len(known.nonmembers))

    def score(self, view: Any, images: Tensor) -> None:
        view.queries += SCORE * len(images)


def cost(known: int, learns: bool) -> int:
    """Queries of the whole attack that learns from `known` images a side."""
    threshold = 0 if learns else 2 * known * SCORE
    return FIXED + FIT * 2 * known + threshold + SCORE * IMAGES


def affordable(budget: int, learns: bool) -> int:
    """Known images a side that the budget leaves."""
    pixels = torch.zeros(KNOWN, 1, 1, 1)
    suite: Any = SimpleNamespace(
        scorer=SimpleNamespace(candidates=torch.zeros(IMAGES, 1, 1, 1), seed=0),
        build=lambda name: Costly(learns),
        view=lambda *given: SimpleNamespace(queries=0),
    )
    return len(afford(suite, "model", "costly", Known(pixels, pixels), budget).members)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("known", [LEAST_KNOWN, 20, 49])
def test_budget__is_spent_to_the_last_known_image(known: int, learns: bool) -> None:
    """What it leaves fits into it, and one known image a side more would not."""
    budget = cost(known, learns)
    assert affordable(budget, learns) == known
    assert affordable(budget + cost(1, learns) - cost(0, learns) - 1, learns) == known
    assert affordable(budget + cost(1, learns) - cost(0, learns), learns) == known + 1


@pytest.mark.parametrize("learns", [True, False])
def test_budget__of_less_than_the_least_is_refused_with_the_least(learns: bool) -> None:
    least = cost(LEAST_KNOWN, learns)
    with pytest.raises(InputError, match=f"needs at least {least} queries for {IMAGES} images"):
        affordable(least - 1, learns)
    assert affordable(10 * cost(KNOWN, learns), learns) == KNOWN
