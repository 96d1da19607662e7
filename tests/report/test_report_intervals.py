"""Intervals: known answers, naive twins, and coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from fedmia.report.intervals import (
    auc_interval,
    auc_variance,
    clopper_pearson,
    mover_difference,
    mover_mean,
    precision_interval,
    wilson,
    z_value,
)
from fedmia.report.metrics import auc


def test_z_value__known_quantiles() -> None:
    assert z_value() == pytest.approx(1.959964, abs=1e-6)
    assert z_value(family=10) == pytest.approx(2.807034, abs=1e-6)


@given(st.floats(0, 1), st.integers(1, 400), st.integers(1, 400), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_auc_interval__limits_solve_newcombes_equation(
    value: float, m: int, n: int, family: int
) -> None:
    low, high = auc_interval(value, m, n, family=family)
    assert 0 <= low <= value <= high <= 1
    assert high > low
    z = z_value(family=family)
    for limit in (low, high):
        if 1e-9 < limit < 1 - 1e-9:
            deviation = z * math.sqrt(auc_variance(limit, m, n))
            assert abs(value - limit) == pytest.approx(deviation, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_auc_interval__keeps_its_width_at_the_ends(value: float) -> None:
    low, high = auc_interval(value, 30, 30)
    assert (low, high)[int(value)] == value
    assert 0.05 < high - low < 0.25


def test_auc_interval__mirrors_about_one_half() -> None:
    low, high = auc_interval(0.8, 25, 60)
    assert auc_interval(0.2, 25, 60) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_auc_interval__refuses_an_empty_side() -> None:
    with pytest.raises(ValueError, match="no interval"):
        auc_interval(0.5, 0, 10)


@pytest.mark.parametrize("truth", [0.5, 0.7, 0.95])
def test_auc_interval__covers_binormal_truth(truth: float) -> None:
    generator = np.random.default_rng(7)
    members, nonmembers, draws = 15, 40, 1500
    gap = norm.ppf(truth) * math.sqrt(2)
    covered = 0
    for _ in range(draws):
        value = auc(generator.normal(gap, 1, members), generator.normal(0, 1, nonmembers))
        low, high = auc_interval(value, members, nonmembers)
        covered += low <= truth <= high
    # Nominal 0.95; a Wald interval at AUC 0.95 and this n covers about 0.90.
    assert 0.935 <= covered / draws <= 0.985


def test_wilson__known_answer() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 10)[0] == 0 and wilson(10, 10)[1] == 1
    assert wilson(0, 10)[1] == pytest.approx(0.2775, abs=1e-4)


def test_clopper_pearson__inverts_the_binomial_tests() -> None:
    low, high = clopper_pearson(3, 20)
    assert binom.sf(2, 20, low) == pytest.approx(0.025, abs=1e-9)
    assert binom.cdf(3, 20, high) == pytest.approx(0.025, abs=1e-9)
    assert clopper_pearson(0, 20)[0] == 0 and clopper_pearson(20, 20)[1] == 1
    assert clopper_pearson(0, 20)[1] == pytest.approx(1 - 0.025 ** (1 / 20))


def test_mover_difference__known_answer_of_newcombe_method_10() -> None:
    # Newcombe (1998), Statist. Med. 17:873, table II, example (a): 56/70 - 48/80.
    found = mover_difference(56 / 70, wilson(56, 70), 48 / 80, wilson(48, 80))
    assert found == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_mover_difference__full_correlation_of_equal_intervals_is_a_point() -> None:
    found = mover_difference(0.6, (0.5, 0.7), 0.6, (0.5, 0.7), correlation=1.0)
    assert found == pytest.approx((0.0, 0.0), abs=1e-9)


def test_mover_mean__matches_difference_of_rates() -> None:
    # (TPR + TNR) / 2 = (1 + (TPR - FPR)) / 2, and Newcombe's interval of TPR - FPR is known.
    low, high = mover_mean(0.8, wilson(56, 70), 1 - 0.6, wilson(32, 80))
    assert (low, high) == pytest.approx(((1 + 0.0524) / 2, (1 + 0.3339) / 2), abs=1e-4)


@pytest.mark.parametrize(
    ("tpr", "fpr"),
    [(0.6, 0.4), *(pytest.param(*p, marks=pytest.mark.slow) for p in ((0.1, 0.02), (0.98, 0.9)))],
)
def test_precision_interval__is_conservative(tpr: float, fpr: float) -> None:
    generator = np.random.default_rng(3)
    n, m, draws = 60, 200, 1500
    hits, alarms = generator.binomial(n, tpr, draws), generator.binomial(m, fpr, draws)
    truth = tpr / (tpr + fpr)
    covered = 0
    for h, a in zip(hits.tolist(), alarms.tolist(), strict=True):
        low, high = precision_interval(h, n, a, m)
        assert 0 <= low <= high <= 1
        covered += low <= truth <= high
    assert covered / draws >= 0.95
