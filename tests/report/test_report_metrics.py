"""Metrics against loops written from their definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from fedmia.records import RoundInfo, ScoredAttack
from fedmia.report.build import round_row
from fedmia.report.delong import auc_estimate, auc_interval
from fedmia.report.intervals import mover_mean, precision_interval, wilson
from fedmia.report.metrics import (
    at_threshold,
    attack_row,
    auc,
    best_threshold,
    oracle_accuracy,
    roc,
    tpr_at_fpr,
)

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


def test_auc__refuses_an_empty_side() -> None:
    with pytest.raises(ValueError, match="0 members"):
        auc(np.zeros(0), np.zeros(3))


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


def test_best_threshold__none_without_known_images() -> None:
    assert best_threshold(np.zeros(0), np.ones(3)) is None


@given(SCORES, SCORES, st.sampled_from([0.1, 0.25, 0.5]))
@settings(max_examples=100, deadline=None)
def test_tpr_at_fpr__is_the_largest_allowed(
    members: np.ndarray, nonmembers: np.ndarray, target: float
) -> None:
    found = tpr_at_fpr(members, nonmembers, target)
    if len(nonmembers) * target < 1 - 1e-9:
        assert found is None
        return
    assert found is not None
    cuts = [np.inf, *members, *nonmembers]
    allowed = [(members >= t).mean() for t in cuts if (nonmembers >= t).mean() <= target + 1e-12]
    tpr, (low, high), achieved = found
    assert tpr == pytest.approx(max(allowed))
    assert low <= tpr <= high and achieved <= target + 1e-12


def test_tpr_at_fpr__known_answer_with_ties() -> None:
    members = np.array([9.0, 8, 5, 5])
    nonmembers = np.array([8.0, 5, 5, 1, 1, 1, 1, 1, 1, 1])
    # 10 %: one false alarm, at 8; at 5 two more would tie in. Of ten, none to four may lie over
    # the threshold of 10 %: it may lie over all, or under 5.
    assert tpr_at_fpr(members, nonmembers, 0.1) == (
        0.5,
        pytest.approx((0.0, 1.0)),
        0.1,
    )
    assert tpr_at_fpr(members, nonmembers, 0.01) is None


def test_at_threshold__known_answer() -> None:
    row = at_threshold(np.array([1.0, 1, 0, 1]), np.array([1.0, 0, 0, 0, 0]), 0.5)
    assert row["recall"] == 0.75 and row["accuracy"] == pytest.approx((0.75 + 0.8) / 2)
    assert row["precision"] == pytest.approx(0.75 / 0.95)
    for name in ("accuracy", "precision", "recall"):
        assert row[f"{name}_ci"][0] < row[name] < row[f"{name}_ci"][1]


def test_at_threshold__nobody_called_a_member_leaves_precision_null() -> None:
    row = at_threshold(np.zeros(4), np.zeros(5), 0.0)
    assert row["precision"] is None and row["precision_ci"] is None and row["accuracy"] == 0.5


def test_oracle_accuracy__bounds_every_threshold() -> None:
    members, nonmembers = np.array([3.0, 2, 2, 0]), np.array([2.0, 1, 1, 1])
    best = max(((members >= t).mean() + (nonmembers < t).mean()) / 2 for t in range(5))
    assert oracle_accuracy(members, nonmembers) == pytest.approx(best) == pytest.approx(0.75)


def test_attack_row__threshold_ignores_the_scored_images(
    scored: Callable[..., ScoredAttack],
) -> None:
    attack = scored("similarity", 0.8, 60, 200, 1)
    moved = replace(attack, scores_members=attack.scores_members + 5)
    assert attack_row(attack, 3)["threshold"] == attack_row(moved, 3)["threshold"]
    other = replace(attack, known_members=attack.known_members + 5)
    assert attack_row(attack, 3)["threshold"] != attack_row(other, 3)["threshold"]


def test_attack_row__float32_scores_give_the_same_numbers_as_float64(
    scored: Callable[..., ScoredAttack],
) -> None:
    # Neighbouring float32 values: their midpoint exists in float64 alone.
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2))
    attack = replace(
        scored("similarity", 0.8, 4, 10, 1),
        scores_members=np.full(4, high),
        scores_nonmembers=np.full(10, low),
        known_members=np.full(3, high),
        known_nonmembers=np.full(3, low),
    )
    assert attack_row(attack, 1)["accuracy"] == 1.0


def test_attack_row__simultaneous_interval_is_wider(scored: Callable[..., ScoredAttack]) -> None:
    row = attack_row(scored("similarity", 0.8, 60, 2000, 1), 12)
    (low, high), (low_s, high_s) = row["auc_ci"], row["auc_ci_simultaneous"]
    assert low_s < low < row["auc"] < high < high_s
    assert all(row["tpr_at_fpr"][t] is not None for t in ("0.001", "0.01", "0.1"))


@pytest.mark.parametrize(("rounds", "said"), [((3, 5, 9), 9), ((4,), 4), ((), None)])
def test_attack_row__its_round_is_the_last_that_it_read(
    scored: Callable[..., ScoredAttack], rounds: tuple[int, ...], said: int | None
) -> None:
    """The model beside which its use is told is the one that the rounds ended with."""
    row = attack_row(scored("ascent", 0.8, 20, 20, 1, rounds=rounds), 1)
    assert row["round"] == said and tuple(row["rounds"]) == rounds


def test_attack_row__what_was_fitted_on_shadows_decides_by_their_threshold(
    scored: Callable[..., ScoredAttack],
) -> None:
    """Members at .6, others at .5 about; the shadows' threshold of .85 knows none of them."""
    attack = scored("encodermi-t", 0.95, 200, 200, 1)
    known = attack_row(attack, 1)
    row = attack_row(replace(attack, shadow_threshold=99.0), 1)
    assert (row["threshold"], row["threshold_source"]) == (99.0, "shadow")
    assert (row["accuracy"], row["recall"], row["precision"]) == (0.5, 0.0, None)
    assert (known["threshold"], known["threshold_source"]) == (row["threshold_refitted"], "known")
    for name in ("accuracy", "accuracy_ci", "precision", "precision_ci", "recall", "recall_ci"):
        assert (
            row[f"{name}_refitted" if "_ci" not in name else f"{name[:-3]}_refitted_ci"]
            == (known[name])
        )
    assert row["accuracy_refitted"] > 0.8 and row["auc"] == known["auc"]


def test_attack_row__without_known_images_and_shadows_there_is_no_threshold(
    scored: Callable[..., ScoredAttack],
) -> None:
    nobody = replace(
        scored("similarity", 0.9, 20, 20, 1),
        known_members=np.zeros(0),
        known_nonmembers=np.zeros(0),
    )
    row = attack_row(nobody, 1)
    for name in ("threshold", "threshold_source", "accuracy", "recall", "accuracy_refitted"):
        assert row[name] is None
    own = attack_row(replace(nobody, shadow_threshold=0.0), 1)
    assert own["threshold_source"] == "shadow" and own["accuracy"] is not None
    assert own["accuracy_refitted"] is None


def test_attack_row__its_round_is_that_of_the_last_model_read(
    scored: Callable[..., ScoredAttack],
) -> None:
    attack = scored("loss-slope", 0.6, 5, 5, 1)
    row = attack_row(replace(attack, rounds=(3, 7, 9)), 1)
    assert (row["round"], row["rounds"]) == (9, (3, 7, 9))
    assert attack_row(replace(attack, rounds=()), 1)["round"] is None


def test_round_row__leakage_is_of_members_over_non_members() -> None:
    """Two of three members over both others, one between: 5 of 6 pairs; none where a side lacks."""
    members, others = np.array([3.0, 4.0, 1.5]), np.array([1.0, 2.0])
    whole = ScoredAttack("a", "", "", "", members, others)
    empty = replace(whole, scores_members=members[:0]), replace(whole, scores_nonmembers=others[:0])
    scored = {"whole": whole, "none": empty[0], "alone": empty[1]}
    row = round_row(RoundInfo(7, True, 1.5, 0.25, scored, {"layer1": whole}))
    assert (row["round"], row["under_attack"], row["loss"], row["knn"]) == (7, True, 1.5, 0.25)
    assert row["leakage"] == {"whole": 5 / 6, "none": None, "alone": None}
    assert row["layers"] == {"layer1": 5 / 6}
    ci = auc_interval(auc_estimate(members, others))
    assert row["leakage_ci"] == {"whole": ci, "none": None, "alone": None}


@pytest.mark.parametrize(("threshold", "accuracy"), [(1.0, 0.75), (0.999, 0.5), (2.0, 0.5)])
def test_at_threshold__a_score_at_the_threshold_is_no_member(
    threshold: float, accuracy: float
) -> None:
    row = at_threshold(np.array([1.0, 2.0]), np.array([1.0, 1.0, 1.0]), threshold)
    assert row["accuracy"] == accuracy


def test_at_threshold__each_interval_is_of_its_own_counts() -> None:
    """3 of 4 members and 1 of 5 others are called members."""
    row = at_threshold(np.array([1.0, 1, 0, 1]), np.array([1.0, 0, 0, 0, 0]), 0.5)
    assert row["recall_ci"] == wilson(3, 4)
    assert row["precision_ci"] == precision_interval(3, 4, 1, 5)
    assert row["accuracy_ci"] == mover_mean(0.75, wilson(3, 4), 0.8, wilson(4, 5))


@pytest.mark.parametrize(
    ("members", "others", "wanted"),
    [
        ([5.0, 7.0], [1.0, 3.0], 4.0),
        ([2.0, 2.0], [2.0], 2.0),
        ([1.0, 3.0], [2.0, 4.0], 2.5),  # both 1.5 and 3.5 cost; 2.5 of three is the middle
        ([3.0, 5.0], [2.0, 4.0, 0.0, 0.0], 2.5),
    ],
)
def test_best_threshold__known_answers(
    members: list[float], others: list[float], wanted: float
) -> None:
    assert best_threshold(np.array(members), np.array(others)) == wanted
