"""Paired differences: DeLong's parts, known answers and coverage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import ScoredAttack
from fedmia.statistics.auc import (
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
    turned = replace(
        attack,
        scores_members=-attack.scores_members,
        scores_nonmembers=-attack.scores_nonmembers,
    )
    flat = replace(attack, scores_members=np.zeros(40), scores_nonmembers=np.zeros(60))
    assert auc_correlation(attack.sides, attack.sides) == pytest.approx(1.0)
    assert auc_correlation(attack.sides, turned.sides) == pytest.approx(-1.0)
    assert auc_correlation(attack.sides, flat.sides) == 0.0


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
    base = scored("ascent", 0.5, 30, 60, 0)
    draws, widths = [], []
    large = generator.normal(size=(2, 200_000)), generator.normal(size=(2, 200_000))

    def pair(members: np.ndarray, others: np.ndarray) -> tuple[ScoredAttack, ScoredAttack]:
        # Two readings of a shared signal, correlated 0.8 by image.
        mix = np.array([[1.0, 0.0], [0.8, 0.6]])
        shifts = np.array([[0.5 + gap], [0.5]])
        m, o = mix @ members + shifts, mix @ others
        one = replace(base, scores_members=m[0], scores_nonmembers=o[0])
        return one, replace(base, scores_members=m[1], scores_nonmembers=o[1])

    one, two = pair(*large)
    truth = auc(one.scores_members, one.scores_nonmembers) - auc(
        two.scores_members, two.scores_nonmembers
    )
    for _ in range(600):
        one, two = pair(generator.normal(size=(2, 30)), generator.normal(size=(2, 60)))
        low, high = difference_interval(one.sides, two.sides)
        draws.append(low <= truth <= high)
        widths.append(high - low)
    assert 0.925 <= np.mean(draws) <= 0.99
    # Without the pairing an interval this size would be about 0.33 wide.
    assert np.mean(widths) < 0.25
