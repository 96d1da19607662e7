"""Decisions at a threshold, against loops written from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmia.statistics.intervals import mover_mean, precision_interval, wilson
from fedmia.statistics.thresholds import (
    best_threshold,
    decide_at_threshold,
    oracle_accuracy,
    tpr_at_fpr,
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
