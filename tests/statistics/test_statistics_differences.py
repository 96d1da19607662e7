"""Paired differences: DeLong's parts, known answers and coverage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmia.statistics.auc import (
    Sides,
    auc,
    auc_correlation,
    auc_estimate,
    auc_interval,
    difference_interval,
)
from fedmia.statistics.intervals import LEVEL, mover_difference
from tests.report.conftest import scored


def test_auc_correlation__itself_one_reversed_minus_one_constant_zero() -> None:
    attack = scored("ascent", 0.7, 40, 60, 0)
    members, others = attack.sides
    assert auc_correlation(attack.sides, attack.sides) == pytest.approx(1.0)
    assert auc_correlation(attack.sides, (-members, -others)) == pytest.approx(-1.0)
    assert auc_correlation(attack.sides, (np.zeros(40), np.zeros(60))) == 0.0


@pytest.mark.parametrize(("n", "m"), [(5, 40), (40, 5), (12, 12)])
def test_auc_correlation__is_delongs_written_out(n: int, m: int) -> None:
    """Every pair by itself; each side weighs by its own number, however unlike the two are."""
    one, two = scored("ascent", 0.7, n, m, 3), scored("ascent-zero", 0.6, n, m, 4)
    two = replace(two, scores_members=two.scores_members + one.scores_members)
    wins = [
        np.array([[float(x > y) for y in a.scores_nonmembers] for x in a.scores_members])
        for a in (one, two)
    ]

    def covariance(a: np.ndarray, b: np.ndarray) -> float:
        sides = 0.0
        for axis, count in ((1, n), (0, m)):
            apart = (a.mean(axis=axis) - a.mean()) * (b.mean(axis=axis) - b.mean())
            sides += float(apart.sum()) / (count - 1) / count
        return sides

    want = covariance(*wins) / np.sqrt(covariance(wins[0], wins[0]) * covariance(wins[1], wins[1]))
    assert auc_correlation(one.sides, two.sides) == pytest.approx(want)


@pytest.mark.parametrize("family", [1, 7])
def test_difference_interval__both_sides_hold_with_the_family(family: int) -> None:
    pair = scored("ascent", 0.8, 30, 70, 6), scored("ascent-zero", 0.6, 30, 70, 7)
    estimates = [auc_estimate(*one.sides) for one in pair]
    sides = [(e.value, auc_interval(e, LEVEL, family)) for e in estimates]
    want = mover_difference(*sides[0], *sides[1], auc_correlation(*(one.sides for one in pair)))
    assert difference_interval(*(one.sides for one in pair), LEVEL, family) == pytest.approx(want)


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.8])
def test_difference_interval__covers_the_true_difference(gap: float) -> None:
    generator = np.random.default_rng(11)

    def pair(n: int, m: int) -> tuple[Sides, Sides]:
        # Two readings of a shared signal, correlated 0.8 by image.
        mix, shifts = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([[0.5 + gap], [0.5]])
        members, others = mix @ generator.normal(size=(2, n)), mix @ generator.normal(size=(2, m))
        members += shifts
        return (members[0], others[0]), (members[1], others[1])

    one, two = pair(200_000, 200_000)
    truth = auc(*one) - auc(*two)
    ends = np.array([difference_interval(*pair(30, 60)) for _ in range(400)])
    low, high = ends.T
    assert 0.925 <= np.mean((low <= truth) & (truth <= high)) <= 0.99
    # Without the pairing an interval this size would be about 0.33 wide.
    assert np.mean(high - low) < 0.25
