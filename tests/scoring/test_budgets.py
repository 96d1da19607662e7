"""A budget of queries covers the fit, its threshold and the scores: an attack of known cost."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from torch import Tensor

from fedmia.attacks.base import Known, Scores
from tests.auditing.attacks import Mean
from tests.auditing.conftest import MEMBERS, NONMEMBERS, Audit, archives, audit

__all__ = ["archives", "audit"]  # fixtures
KNOWN, LEAST = 20, 8  # known images a side, and the fewest that a budget buys
IMAGES = MEMBERS + NONMEMBERS - 2 * KNOWN  # scored images
FIXED, FIT, SCORE = 7, 3, 5  # queries of a fit, of it for each known image, of a score


class Costly(Mean):
    """An attack that asks for as many queries as it says."""

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        view.charge(FIXED + FIT * (len(known.members) + len(known.nonmembers)))
        super().fit(view, known, rng)

    def score(self, view: Any, images: Tensor) -> Scores:
        view.charge(SCORE * len(images))
        return super().score(view, images)


class Learning(Costly):
    """Which has asked for the known images already, that choose its threshold."""

    learns: ClassVar[bool] = True  # type: ignore[assignment]


def cost(known: int, name: str) -> int:
    """Queries of the whole attack that learns from `known` images a side."""
    threshold = 0 if name == "Learning" else 2 * known * SCORE
    return FIXED + FIT * 2 * known + threshold + SCORE * IMAGES


def flags(name: str, budget: int) -> str:
    return f"--attacks {__name__}:{name} --known {KNOWN} --query-budget {budget}"


@pytest.mark.parametrize("name", ["Costly", "Learning"])
@pytest.mark.parametrize("known", [LEAST, 13, KNOWN - 1])
def test_budget__is_spent_to_the_last_known_image(known: int, name: str, audit: Audit) -> None:
    """What it leaves fits into it, and one known image a side more would not."""
    one = cost(1, name) - cost(0, name)
    for more, left in ((0, known), (one - 1, known), (one, known + 1)):
        report = audit(flags(name, cost(known, name) + more)).report
        notes = [note for note in report["notes"] if "the query budget of" in note]
        assert [f"leaves {left} known images a side" in note for note in notes] == (
            [True] if left < KNOWN else []
        )
        (row,), (control,) = report["attacks"], report["controls"]["untrained"]
        assert row["queries"] == cost(left, name) >= control["queries"]


@pytest.mark.parametrize("name", ["Costly", "Learning"])
def test_budget__of_less_than_the_least_is_refused_with_the_least(name: str, audit: Audit) -> None:
    least = cost(LEAST, name)
    refused = audit(flags(name, least - 1))
    assert refused.code == 2
    assert f"needs at least {least} queries for {IMAGES} images and {LEAST} known" in refused.err
