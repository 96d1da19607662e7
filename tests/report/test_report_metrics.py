"""Rows of attacks, pairs and rounds, from known scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import Evaluation, Pair, ScoredAttack
from fedmia.records.rows import RoundRow
from fedmia.report.build import round_row
from fedmia.report.metrics import attack_row, paired_rows
from fedmia.report.words.attacks import pair_sentence
from fedmia.statistics.auc import auc_estimate, auc_interval
from tests.report.conftest import scored

OVER = "the same rounds without ascent"


def test_attack_row__threshold_ignores_the_scored_images() -> None:
    attack = scored("similarity", 0.8, 60, 200, 1)
    moved = replace(attack, scores_members=attack.scores_members + 5)
    assert attack_row(attack, 3).threshold == attack_row(moved, 3).threshold
    other = replace(attack, known_members=attack.known_members + 5)
    assert attack_row(attack, 3).threshold != attack_row(other, 3).threshold


def test_attack_row__float32_scores_give_the_same_numbers_as_float64() -> None:
    # Neighbouring float32 values: their midpoint exists in float64 alone.
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2))
    sides = np.full(4, high), np.full(10, low)
    known = {"known_members": np.full(3, high), "known_nonmembers": np.full(3, low)}
    attack = ScoredAttack("similarity", "", "", "", *sides, **known)
    assert attack_row(attack, 1).accuracy == 1.0


def test_attack_row__simultaneous_interval_is_wider() -> None:
    row = attack_row(scored("similarity", 0.8, 60, 2000, 1), 12)
    (low, high), (low_s, high_s) = row.auc_ci, (row.low, row.high)
    assert low_s < low < row.auc < high < high_s
    assert all(row.tpr_at_fpr[t] is not None for t in ("0.001", "0.01", "0.1"))


@pytest.mark.parametrize(("rounds", "last"), [((3, 5, 9), 9), ((4,), 4), ((), None)])
def test_attack_row__its_round_is_the_last_that_it_read(
    rounds: tuple[int, ...], last: int | None
) -> None:
    """The model beside which its use is told is the one that the rounds ended with."""
    row = attack_row(scored("ascent", 0.8, 20, 20, 1, rounds=rounds), 1)
    assert row.round == last and tuple(row.rounds) == rounds


def test_attack_row__what_was_fitted_on_shadows_decides_by_their_threshold() -> None:
    attack = scored("encodermi-t", 0.95, 200, 200, 1)
    known = attack_row(attack, 1)
    row = attack_row(replace(attack, shadow_threshold=99.0), 1)
    assert (row.threshold, row.threshold_source) == (99.0, "shadow")
    assert (row.accuracy, row.recall, row.precision) == (0.5, 0.0, None)
    assert (known.threshold, known.threshold_source) == (row.threshold_refitted, "known")
    for name in ("accuracy", "precision", "recall"):
        for end in ("", "_ci"):
            refitted = getattr(row, f"{name}_refitted{end}")
            assert refitted == getattr(known, f"{name}{end}")
    assert (row.accuracy_refitted or 0) > 0.8 and row.auc == known.auc


def test_attack_row__without_known_images_and_shadows_there_is_no_threshold() -> None:
    known = {"known_members": np.zeros(0), "known_nonmembers": np.zeros(0)}
    nobody = scored("similarity", 0.9, 20, 20, 1, **known)
    row = attack_row(nobody, 1)
    for name in ("threshold", "threshold_source", "accuracy", "recall", "accuracy_refitted"):
        assert getattr(row, name) is None
    own = attack_row(replace(nobody, shadow_threshold=0.0), 1)
    assert own.threshold_source == "shadow" and own.accuracy is not None
    assert own.accuracy_refitted is None


def test_attack_row__precision_at_a_prior_is_of_the_tpr_and_the_ends_of_its_interval() -> None:
    attack = scored("similarity", 0.9, 60, 200, 1)
    row, plain = attack_row(attack, 3, prior=0.02), attack_row(attack, 3)
    right, ci = row.precision_at_prior, row.precision_at_prior_ci
    assert right is not None and ci is not None and [*right] == [*row.tpr_at_fpr]
    assert right["0.001"] is None is ci["0.001"]  # 200 non-members cannot tell
    for target in ("0.01", "0.1"):
        low, high = ci[target] or ()
        for value, tpr in zip(
            (right[target], low, high),
            (row.tpr_at_fpr[target], *(row.tpr_at_fpr_ci[target] or ())),
            strict=True,
        ):
            assert tpr is not None
            named = 0.02 * tpr + 0.98 * float(target)
            assert value == pytest.approx(0.02 * tpr / named)
    assert plain.precision_at_prior is None is plain.precision_at_prior_ci
    assert replace(row, precision_at_prior=None, precision_at_prior_ci=None) == plain


def test_round_row__leakage_is_of_members_over_non_members(run: Evaluation) -> None:
    """Two of three members over both others, one between: 5 of 6 pairs; none where a side lacks."""
    members, others = np.array([3.0, 4.0, 1.5]), np.array([1.0, 2.0])
    whole = ScoredAttack("a", "", "", "", members, others)
    empty = replace(whole, scores_members=members[:0]), replace(whole, scores_nonmembers=others[:0])
    attacks = {"whole": whole, "none": empty[0], "alone": empty[1]}
    bare = RoundRow(round=7, under_attack=True, loss=1.5, knn=0.25)
    scores = replace(run, leakage={7: attacks}, layers={7: {"layer1": whole}})
    row = round_row(bare, scores)
    assert (row.round, row.under_attack, row.loss, row.knn) == (7, True, 1.5, 0.25)
    assert row.leakage == {"whole": 5 / 6, "none": None, "alone": None}
    assert row.layers == {"layer1": 5 / 6}
    ci = auc_interval(auc_estimate(members, others))
    assert row.leakage_ci == {"whole": ci, "none": None, "alone": None}


@pytest.mark.parametrize(
    ("aucs", "family", "words"),
    [
        ((0.9, 0.5), 5, "ascent adds +0."),
        ((0.5, 0.9), 5, "ascent finds less than"),
        ((0.62, 0.5), 10_000, "nothing measurable"),  # by the simultaneous interval
    ],
)
def test_paired_row__adds_or_tells_less(aucs: tuple[float, float], family: int, words: str) -> None:
    attack, control = (scored("ascent", auc, 150, 300, i) for i, auc in enumerate(aucs))
    (row,) = paired_rows([Pair(attack, replace(control, name="zero"), OVER)], family)
    sentence = pair_sentence(row, [row])
    assert words in sentence and OVER in sentence
    assert row.difference == pytest.approx(row.auc - row.auc_control)
    assert (row.ci[0] > 0 > row.low) == (family > 5)


def test_paired_rows__what_adds_to_one_control_of_two_says_so() -> None:
    attack, before, norm = (scored("a", auc, 150, 300, i) for i, auc in enumerate((0.8, 0.5, 0.9)))
    pairs = [Pair(attack, before, OVER), Pair(attack, norm, "another")]
    rows = paired_rows(pairs, 5)
    adds, less = (pair_sentence(row, rows) for row in rows)
    assert adds.endswith(f"over {OVER}, but not over another")
    assert "finds less than another" in less and OVER not in less
    assert pair_sentence(rows[0], rows[:1]).endswith(OVER)


def test_paired_row__an_attack_adds_nothing_over_itself() -> None:
    attack = scored("ascent", 0.7, 40, 60, 0)
    (row,) = paired_rows([Pair(attack, replace(attack, name="ascent-zero"), OVER)], 5)
    assert row.difference == 0 and row.ci == pytest.approx((0, 0), abs=0.02)
