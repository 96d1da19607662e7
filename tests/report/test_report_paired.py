"""Paired differences: DeLong's parts, known answers and coverage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import Pair, ScoredAttack
from fedmia.report.delong import auc_interval
from fedmia.report.intervals import LEVEL, mover_difference
from fedmia.report.metrics import auc
from fedmia.report.paired import auc_correlation, difference_interval, estimate_of, paired_row

Make = Callable[..., ScoredAttack]
OVER = "the same rounds without ascent"


def test_auc_correlation__itself_one_reversed_minus_one_constant_zero(scored: Make) -> None:
    attack = scored("ascent", 0.7, 40, 60, 0)
    turned = replace(
        attack,
        scores_members=-attack.scores_members,
        scores_nonmembers=-attack.scores_nonmembers,
    )
    flat = replace(attack, scores_members=np.zeros(40), scores_nonmembers=np.zeros(60))
    assert auc_correlation(attack, attack) == pytest.approx(1.0)
    assert auc_correlation(attack, turned) == pytest.approx(-1.0)
    assert auc_correlation(attack, flat) == 0.0


@pytest.mark.parametrize(("n", "m"), [(5, 40), (40, 5), (12, 12)])
def test_auc_correlation__is_delongs_written_out(n: int, m: int, scored: Make) -> None:
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
    assert auc_correlation(one, two) == pytest.approx(want)


def test_paired_row__an_attack_adds_nothing_over_itself(scored: Make) -> None:
    attack = scored("ascent", 0.7, 40, 60, 0)
    row = paired_row(Pair(attack, replace(attack, name="ascent-zero"), OVER), 5)
    assert row["difference"] == 0 and row["ci"] == pytest.approx((0, 0), abs=0.02)
    assert "adds nothing measurable over the same rounds without ascent" in row["statement"]


def test_paired_row__says_adds_and_tells_less(scored: Make) -> None:
    strong, weak = scored("ascent", 0.9, 150, 300, 0), scored("ascent-zero", 0.5, 150, 300, 1)
    adds = paired_row(Pair(strong, weak, OVER), 5)["statement"]
    assert adds.startswith("ascent adds +0.") and adds.endswith(f"AUC over {OVER}")
    turned = paired_row(Pair(weak, strong, "other"), 5)
    assert turned["statement"].startswith("ascent-zero tells less than other: -0.")


def test_paired_row__statement_rests_on_the_simultaneous_interval(scored: Make) -> None:
    attack, zero = scored("ascent", 0.62, 100, 300, 4), scored("ascent-zero", 0.5, 100, 300, 5)
    row = paired_row(Pair(attack, zero, OVER), 10_000)
    assert row["ci"][0] > 0 > row["ci_simultaneous"][0]
    assert "nothing measurable" in row["statement"]


@pytest.mark.parametrize("family", [1, 7])
def test_difference_interval__both_sides_hold_with_the_family(scored: Make, family: int) -> None:
    pair = scored("ascent", 0.8, 30, 70, 6), scored("ascent-zero", 0.6, 30, 70, 7)
    found = [estimate_of(one) for one in pair]
    sides = [(e.value, auc_interval(e, LEVEL, family)) for e in found]
    want = mover_difference(*sides[0], *sides[1], auc_correlation(*pair))
    assert difference_interval(*pair, LEVEL, family) == pytest.approx(want)


def test_paired_row__refuses_other_images(scored: Make) -> None:
    with pytest.raises(ValueError, match="ascent-zero"):
        pair = scored("ascent", 0.7, 40, 60, 0), scored("ascent-zero", 0.5, 39, 60, 1)
        paired_row(Pair(*pair, OVER), 1)


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.8])
def test_difference_interval__covers_the_true_difference(scored: Make, gap: float) -> None:
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
        low, high = difference_interval(one, two)
        draws.append(low <= truth <= high)
        widths.append(high - low)
    assert 0.925 <= np.mean(draws) <= 0.99
    # Without the pairing an interval this size would be about 0.33 wide.
    assert np.mean(widths) < 0.25
