"""Intervals: known answers, naive twins, and coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from fedmia.statistics.intervals import (
    clopper_pearson,
    mean_interval,
    mover_difference,
    mover_mean,
    precision_interval,
    rate_interval,
    tail,
    wilson,
)
from fedmia.statistics.thresholds import tpr_at_fpr


def test_tail__is_shared_by_the_family() -> None:
    assert tail() == pytest.approx(0.025) and tail(family=10) == pytest.approx(0.0025)


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


def test_rate_interval__limits_are_those_at_the_neighbouring_thresholds() -> None:
    # Ten thresholds, each with ten members and ten non-members more, of 100 and 1,000.
    counts = np.arange(11) * 10
    low, high = rate_interval(counts, counts, 100, 1000, 0.05)
    fewest, most = binom.ppf(0.0125, 1000, 0.05), binom.isf(0.0125, 1000, 0.05)
    assert 30 <= fewest - 1 < 40 and 60 <= most < 70
    assert low == pytest.approx(clopper_pearson(30, 100, 0.975)[0])
    assert high == pytest.approx(clopper_pearson(60, 100, 0.975)[1])


def test_rate_interval__no_lower_limit_where_the_threshold_may_lie_over_all() -> None:
    low, high = rate_interval(np.array([0, 50, 50]), np.array([0, 0, 1000]), 50, 1000, 0.001)
    assert low == 0 and high == 1


def test_tpr_at_fpr__interval_holds_the_error_of_the_threshold() -> None:
    generator = np.random.default_rng(5)
    gap, draws = 2.0, 150
    truth = float(norm.sf(norm.isf(0.01) - gap))
    covered = bare = 0
    for _ in range(draws):
        members, others = generator.normal(gap, 1, 960), generator.normal(0, 1, 960)
        interval = tpr_at_fpr(members, others, 0.01)
        assert interval is not None
        covered += interval[1][0] <= truth <= interval[1][1]
        low, high = clopper_pearson(round(interval[0] * 960), 960)
        bare += low <= truth <= high
    # Clopper-Pearson's at the threshold that was drawn covers half.
    assert bare / draws < 0.65 and covered / draws >= 0.95


def test_mover_difference__known_answer_of_newcombe_method_10() -> None:
    # Newcombe (1998), Statist. Med. 17:873, table II, example (a): 56/70 - 48/80.
    interval = mover_difference(56 / 70, wilson(56, 70), 48 / 80, wilson(48, 80))
    assert interval == pytest.approx((0.0524, 0.3339), abs=1e-4)
    # Full correlation of equal intervals is a point.
    interval = mover_difference(0.6, (0.5, 0.7), 0.6, (0.5, 0.7), correlation=1.0)
    assert interval == pytest.approx((0.0, 0.0), abs=1e-9)


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


def test_mean_interval__is_of_any_distribution_and_never_a_point() -> None:
    """Of 0 and 1 it is the exact one, else quantiles of randomly weighted means."""
    for k, n in ((8, 8), (4, 8), (3, 8), (0, 8), (1, 1), (59, 60)):
        exact = clopper_pearson(k, n)
        assert mean_interval([1.0] * k + [0.0] * (n - k)) == pytest.approx(exact, abs=1e-5)
    for values in ([0.5] * 8, [0.6, 0.61, 0.62], [1.0] * 7 + [0.9], list(np.linspace(0.3, 0.5, 8))):
        low, high = mean_interval([*map(float, values)])
        drawn = np.random.default_rng(0).dirichlet(np.ones(len(values) + 1), 40_000)
        expected = (
            np.quantile(drawn @ [*values, 0.0], 0.025), np.quantile(drawn @ [*values, 1.0], 0.975)
        )  # fmt: skip
        assert (low, high) == pytest.approx(expected, abs=0.01)
        assert low < np.mean(values) < high


def test_mean_interval__covers() -> None:
    """Of AUCs of eight federations that are often 1."""
    draw, inside = np.random.default_rng(1), 0
    for _ in range(40):
        values = np.minimum(1, draw.beta(4, 0.5, size=8).round(1))
        low, high = mean_interval([*map(float, values)])
        inside += low <= 4 / 4.5 <= high
    assert inside >= 38
