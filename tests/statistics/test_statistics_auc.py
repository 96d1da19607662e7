"""DeLong's variance against the double loop, and the interval of an AUC: limits and coverage."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t
from sklearn.metrics import roc_auc_score

from fedmia.statistics.auc import (
    AucEstimate,
    as_sure,
    auc,
    auc_estimate,
    auc_interval,
    one_score_count,
)
from fedmia.statistics.thresholds import roc


def twin(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """AUC and variance as DeLong, DeLong and Clarke-Pearson (1988) write them, in loops."""
    psi = [[float(a > b) + 0.5 * float(a == b) for b in others] for a in members]
    n, m = len(members), len(others)
    theta = sum(map(sum, psi)) / (n * m)
    rows = [sum(row) / m for row in psi]
    columns = [sum(row[j] for row in psi) / n for j in range(m)]
    s10 = sum((v - theta) ** 2 for v in rows) / (n - 1)
    s01 = sum((v - theta) ** 2 for v in columns) / (m - 1)
    return theta, s10 / n + s01 / m


# Few distinct values, so that ties are the rule.
SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=14).map(
    lambda values: np.array(values, dtype=float)
)


@given(SCORES, SCORES)
@settings(max_examples=100, deadline=None)
def test_auc__counts_pairs_and_halves_ties(members: np.ndarray, nonmembers: np.ndarray) -> None:
    pairs = [(a > b) + 0.5 * (a == b) for a in members for b in nonmembers]
    assert auc(members, nonmembers) == pytest.approx(np.mean(pairs), abs=1e-12)
    truth = [1] * len(members) + [0] * len(nonmembers)
    expected = roc_auc_score(truth, np.concatenate([members, nonmembers]))
    assert auc(members, nonmembers) == pytest.approx(expected, abs=1e-12)
    fpr, tpr = roc(members, nonmembers)
    assert np.trapezoid(tpr, fpr) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("function", [auc, auc_estimate])
def test_auc__refuses_an_empty_side(function: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="0 members"):
        function(np.zeros(0), np.zeros(3))


@pytest.mark.parametrize("seed", range(5))
def test_auc_estimate__delongs_loops(seed: int) -> None:
    generator = np.random.default_rng(seed)
    members, others = generator.integers(0, 6, 7 + seed) * 1.0, generator.integers(0, 5, 11) * 1.0
    estimate = auc_estimate(members, others)
    assert (estimate.value, estimate.variance) == pytest.approx(twin(members, others), abs=1e-12)
    assert estimate.value == pytest.approx(auc(members, others))
    assert estimate.smaller == 7 + min(seed, 4)


def test_auc_estimate__even_weights_are_no_weights() -> None:
    generator = np.random.default_rng(1)
    members, others = generator.normal(1, 1, 9), generator.normal(0, 2, 14)
    plain = auc_estimate(members, others)
    even = auc_estimate(members, others, np.full(14, 1 / 14))
    assert vars(even) == pytest.approx(vars(plain))
    # A non-member without weight counts for nothing.
    more = auc_estimate(members, np.append(others, 99.0), np.append(np.full(14, 1 / 14), 0.0))
    assert vars(more) == pytest.approx(vars(plain))


def test_auc_estimate__freedom_is_welchs_by_hand() -> None:
    """Of members {1, 3} and non-members {0, 2, 4} the AUC is 1/2: a member is over 1 or 2 of 3
    non-members, and 2, 1 or 0 of 2 members are over a non-member."""
    estimate = auc_estimate(np.array([1.0, 3.0]), np.array([0.0, 2.0, 4.0]))
    of_members = ((1 / 3 - 1 / 2) ** 2 + (2 / 3 - 1 / 2) ** 2) / 1 / 2  # 1/36
    of_nonmembers = ((1 - 1 / 2) ** 2 + 0 + (0 - 1 / 2) ** 2) / 2 / 3  # 1/12
    assert estimate.variance == pytest.approx(of_members + of_nonmembers) == pytest.approx(1 / 9)
    # (1/9)^2 / ((1/36)^2 / 1 + (1/12)^2 / 2) = 16 / (1 + 9/2)
    assert estimate.freedom == pytest.approx(32 / 11)
    draw = np.random.default_rng(0).normal(size=40)
    assert auc_estimate(draw, -draw).freedom == pytest.approx(2 * 39)  # equal variances: 2 (n - 1)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(2, 400), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_auc_interval__limits_solve_the_score_equation(
    value: float, share: float, smaller: int, family: int
) -> None:
    spread = value * (1 - value)
    estimate = AucEstimate(value, share * spread / smaller, smaller - 1.0, smaller)
    low, high = auc_interval(estimate, family=family)
    assert 0 <= low <= value <= high <= 1 and high > low
    doubt = (1 + smaller * spread / 1.5) ** -3
    trials = smaller / ((1 - doubt) * (share if spread else 0) + doubt)
    quantile = t.isf(0.025 / family, smaller - 1)
    for limit in (low, high):
        if 1e-6 < limit < 1 - 1e-6:
            deviation = quantile * math.sqrt(limit * (1 - limit) / trials)
            assert abs(value - limit) == pytest.approx(deviation, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_auc_interval__keeps_its_width_at_the_ends(value: float) -> None:
    members, others = np.arange(30.0) + 100 * value, np.arange(30.0) + 100 * (1 - value)
    low, high = auc_interval(auc_estimate(members, others))
    assert (low, high)[int(value)] == value
    # As wide as that of 30 of 30 right: Wilson's with Student's quantile of 29.
    assert high - low == pytest.approx(1 / (1 + 30 / t.isf(0.025, 29) ** 2))


def test_auc_interval__one_image_on_a_side_says_almost_nothing() -> None:
    low, high = auc_interval(auc_estimate(np.array([0.5]), np.linspace(0, 1, 100)))
    assert low < 0.05 and high > 0.95


def test_auc_interval__mirrors_about_one_half() -> None:
    generator = np.random.default_rng(3)
    members, others = generator.normal(1, 2, 25), generator.normal(0, 1, 60)
    low, high = auc_interval(auc_estimate(members, others))
    turned = auc_interval(auc_estimate(-members, -others))
    assert turned == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.parametrize(("spread", "truth"), [(1.0, 0.95), (2.0, 0.5), (4.0, 0.7), (0.5, 0.5)])
def test_auc_interval__covers_whatever_the_spread(spread: float, truth: float) -> None:
    generator = np.random.default_rng(7)
    n, m, draws = 104, 1080, 400
    gap = norm.ppf(truth) * math.hypot(1, spread)
    covered = 0
    for _ in range(draws):
        estimate = auc_estimate(generator.normal(gap, spread, n), generator.normal(0, 1, m))
        low, high = auc_interval(estimate)
        covered += low <= truth <= high
    # Newcombe's (2006) covers 87 % at twice the spread, 81 % at four times, 99 % at half.
    assert 0.92 <= covered / draws <= 0.98


def test_coverage__of_the_committed_simulation() -> None:
    """What the report's intervals promise, in each cell, less two Monte-Carlo errors."""
    path = Path(__file__).parents[2] / "research" / "results" / "coverage.json"
    simulation = json.loads(path.read_text())

    def error(share: float) -> float:
        return 2 * math.sqrt(share * (1 - share) / float(simulation["draws"]))

    cells = [*simulation["auc"], *simulation["paired"], *simulation["tpr"]]
    assert len(cells) == 6 * 8 * 5 + 4 * 6 + 6 * 5 * 2
    assert [c for c in cells if c["coverage"] < 0.93 - error(0.93)] == []
    many = [c for c in simulation["auc"] if min(c["members"], c["nonmembers"]) >= 100]
    assert [c for c in many if c["auc"] <= 0.95 and c["coverage"] > 0.97 + error(0.97)] == []
    assert max(c["missed"] for c in simulation["family"] if c["shape"] == "twice") <= 0.07


@pytest.mark.parametrize("recognised", [False, True])
@pytest.mark.parametrize("value", [0.65, 0.8, 0.9])
def test_as_sure__is_as_wide_as_a_leak_of_that_auc_would_be(value: float, recognised: bool) -> None:
    """Limits from scores without a leak, against those of scores that leak, of two shapes."""
    stream, limits = np.random.default_rng(0), list[tuple[float, float]]()
    for _ in range(100):
        members, others = stream.normal(size=(2, 100))
        quiet = as_sure(auc_estimate(members, others), value)
        shift = norm.ppf(value) * np.sqrt(2)
        shift = 6 * (stream.random(100) < 2 * value - 1) if recognised else shift
        leaking = auc_estimate(members + shift, others)
        limits.append((auc_interval(quiet)[0], auc_interval(leaking)[0]))
    rehearsed, real = np.median(limits, axis=0)
    assert real - 0.02 < rehearsed < real + 0.01


def test_as_sure__of_equal_scores_or_perfect_ones_is_not_surer_than_images_allow() -> None:
    best = auc_interval(AucEstimate(0.8, 0.16 / (3 * 50), 98, 50))[0]
    for members in (np.zeros(50), np.ones(50)):
        low, high = auc_interval(as_sure(auc_estimate(members, np.zeros(50)), 0.8))
        assert 0.6 < low <= best and high < 0.95


@pytest.mark.parametrize(
    ("members", "others", "count"),
    [
        ([2.0] * 20, [2.0] * 40, 60),
        ([2.0] * 19 + [3], [2.0] * 38 + [1, 4], 57),
        ([2.0] * 18 + [3, 4], [2.0] * 400, None),  # of both sides together 99.5 %, of members 90 %
        ([2.0] * 40, [2.0] * 18 + [3, 4], None),
        ([2.0] * 20, [3.0] * 20, None),  # perfect
        ([1e-3 * (1 + 1e-7)] * 20, [1e-3] * 20, 40),  # a digit of float32
        ([1e-3 * (1 + 1e-5)] * 20, [1e-3] * 20, None),
        ([1e-9] * 20, [0.0] * 20, None),  # no score is near 0 but 0
        ([2.0], [], None),
        ([math.inf] * 20, [math.inf] * 20, 40),
    ],
)
def test_one_score_count(members: list[float], others: list[float], count: int | None) -> None:
    assert one_score_count(np.array(members), np.array(others)) == count


@given(st.integers(0, 5), st.integers(0, 10), st.lists(st.integers(-1, 1), min_size=15))
def test_one_score__an_auc_within_its_bound_of_guessing(n: int, m: int, rest: list[int]) -> None:
    """Whatever the few others score."""
    sides = np.array([0] * (100 - n) + rest[:n]), np.array([0] * (200 - m) + rest[n : n + m])
    assert one_score_count(*sides) is not None
    assert abs(auc(*sides) - 0.5) <= (1 - 0.95**2) / 2 + 1e-9
