"""Decisions at a threshold, against loops written from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedmia.statistics.intervals import mover_mean, precision_interval, wilson
from fedmia.statistics.thresholds import (
    best_threshold,
    decide_at_threshold,
    oracle_accuracy,
    precision_at_prior,
    tpr_at_fpr,
    tpr_band,
)

# Few distinct values, so that ties are the rule.
SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=14).map(
    lambda values: np.array(values, dtype=float)
)


@given(SCORES, SCORES)
@settings(max_examples=100, deadline=None)
def test_best_threshold__beats_every_midpoint(members: np.ndarray, nonmembers: np.ndarray) -> None:
    def gain(t: float) -> float:
        return float((members > t).mean() - (nonmembers > t).mean())

    cut = best_threshold(members, nonmembers)
    assert cut is not None
    levels = sorted(set(members) | set(nonmembers))
    for a, b in zip(levels, levels[1:], strict=False):
        assert gain(cut) >= gain((a + b) / 2) - 1e-12
    if len(levels) > 1:
        assert cut not in levels and levels[0] < cut < levels[-1]


@given(SCORES, SCORES, st.sampled_from([0.1, 0.25, 0.5]))
@settings(max_examples=100, deadline=None)
def test_tpr_at_fpr__is_the_largest_allowed(
    members: np.ndarray, nonmembers: np.ndarray, target: float
) -> None:
    rate = tpr_at_fpr(members, nonmembers, target)
    if len(nonmembers) * target < 1 - 1e-9:
        assert rate is None
        return
    assert rate is not None
    cuts = [np.inf, *members, *nonmembers]
    allowed = [(members >= t).mean() for t in cuts if (nonmembers >= t).mean() <= target + 1e-12]
    tpr, (low, high), achieved = rate
    assert tpr == pytest.approx(max(allowed))
    assert low <= tpr <= high and achieved <= target + 1e-12


@given(SCORES, SCORES)
@settings(max_examples=50, deadline=None)
def test_tpr_band__is_the_interval_at_each_rate(
    members: np.ndarray, nonmembers: np.ndarray
) -> None:
    targets = np.linspace(1 / len(nonmembers), 1, 9)
    low, high = tpr_band(members, nonmembers, targets)
    for target, *band in zip(targets, low, high, strict=True):
        rate = tpr_at_fpr(members, nonmembers, target)
        assert rate is not None and tuple(band) == rate[1]
        assert 0 <= band[0] <= rate[0] <= band[1] <= 1
    assert (np.diff(low) >= 0).all() and (np.diff(high) >= 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_tpr_band__of_subjects_never_falls_and_holds_each_interval(seed: int) -> None:
    """Their effective trials differ by threshold, so that the intervals alone do fall."""
    stream = np.random.default_rng(seed)
    subjects = np.repeat(np.arange(12), 6), np.repeat(np.arange(30), 6)
    members, nonmembers = (
        shift + stream.normal(size=of[-1] + 1)[of] + stream.normal(size=len(of))
        for shift, of in zip((1.0, 0.0), subjects, strict=True)
    )
    targets = np.geomspace(1 / len(nonmembers), 1, 40)
    low, high = tpr_band(members, nonmembers, targets, subjects)
    assert (np.diff(low) >= 0).all() and (np.diff(high) >= 0).all()
    assert low.min() >= 0 and high.max() <= 1
    rates = [tpr_at_fpr(members, nonmembers, t, subjects) for t in targets]
    alone = np.array([rate[1] for rate in rates if rate is not None])
    assert len(alone) == 40 and (low <= alone[:, 0]).all() and (high >= alone[:, 1]).all()
    assert (np.diff(alone, axis=0) < 0).any()
    by_image = tpr_band(members, nonmembers, targets)
    assert (high - low).mean() > 1.1 * (by_image[1] - by_image[0]).mean()


def test_tpr_band__covers_the_true_curve_at_each_rate() -> None:
    """Binormal scores, 600 draws: the least coverage of the five rates is 0.96."""
    stream, targets = np.random.default_rng(0), np.array([0.01, 0.03, 0.1, 0.3, 0.8])
    true = norm.cdf(1 + norm.ppf(targets))
    held = []
    for _ in range(600):
        low, high = tpr_band(stream.normal(1, 1, 80), stream.normal(0, 1, 200), targets)
        held.append((low <= true) & (true <= high))
    coverage = np.mean(held, axis=0)
    print(coverage)
    assert coverage.min() >= 0.95


def test_at_threshold__known_answer_and_intervals_of_its_own_counts() -> None:
    """3 of 4 members and 1 of 5 others are called members."""
    row = decide_at_threshold(np.array([1.0, 1, 0, 1]), np.array([1.0, 0, 0, 0, 0]), 0.5)
    assert row["recall"] == 0.75 and row["accuracy"] == pytest.approx((0.75 + 0.8) / 2)
    assert row["precision"] == pytest.approx(0.75 / 0.95)
    assert row["recall_ci"] == wilson(3, 4)
    assert row["precision_ci"] == precision_interval(3, 4, 1, 5)
    assert row["accuracy_ci"] == mover_mean(0.75, wilson(3, 4), 0.8, wilson(4, 5))
    nobody = decide_at_threshold(np.zeros(4), np.zeros(5), 0.0)
    assert nobody["precision"] is None is nobody["precision_ci"] and nobody["accuracy"] == 0.5


def test_oracle_accuracy__bounds_every_threshold() -> None:
    members, nonmembers = np.array([3.0, 2, 2, 0]), np.array([2.0, 1, 1, 1])
    best = max(((members >= t).mean() + (nonmembers < t).mean()) / 2 for t in range(5))
    assert oracle_accuracy(members, nonmembers) == pytest.approx(best) == pytest.approx(0.75)


@pytest.mark.parametrize(("threshold", "accuracy"), [(1.0, 0.75), (0.999, 0.5), (2.0, 0.5)])
def test_at_threshold__a_score_at_the_threshold_is_no_member(
    threshold: float, accuracy: float
) -> None:
    row = decide_at_threshold(np.array([1.0, 2.0]), np.array([1.0, 1.0, 1.0]), threshold)
    assert row["accuracy"] == accuracy


@pytest.mark.parametrize(
    ("members", "others", "wanted"),
    [
        ([5.0, 7.0], [1.0, 3.0], 4.0),
        ([2.0, 2.0], [2.0], 2.0),
        ([1.0, 3.0], [2.0, 4.0], 2.5),  # both 1.5 and 3.5 cost; 2.5 of three is the middle
        ([3.0, 5.0], [2.0, 4.0, 0.0, 0.0], 2.5),
        ([], [1.0], None),
    ],
)
def test_best_threshold__known_answers(
    members: list[float], others: list[float], wanted: float | None
) -> None:
    assert best_threshold(np.array(members), np.array(others)) == wanted


def test_precision_at_prior__is_that_of_a_count_and_of_a_guess_the_prior() -> None:
    """Of 100,000 records 1,000 are members: 500 of them and 990 of the 99,000 others are named."""
    assert precision_at_prior(0.5, 0.01, 0.01) == pytest.approx(500 / (500 + 990))
    assert precision_at_prior(1.0, 0.001, 0.5) == pytest.approx(1 / 1.001)
    assert precision_at_prior(0.0, 0.1, 0.3) == 0.0
    for prior in (1e-6, 0.2, 0.999):
        assert precision_at_prior(0.1, 0.1, prior) == pytest.approx(prior)
        rates = [precision_at_prior(t, 0.01, prior) for t in np.linspace(0, 1, 21)]
        assert (np.diff(rates) > 0).all() and rates[-1] < 1  # so ends of an interval are its ends


@pytest.mark.parametrize(("fpr", "prior"), [(0.0, 0.5), (1.1, 0.5), (0.1, 0.0), (0.1, 1.0)])
def test_precision_at_prior__refuses_what_is_no_rate(fpr: float, prior: float) -> None:
    with pytest.raises(ValueError, match="must be in"):
        precision_at_prior(0.5, fpr, prior)
