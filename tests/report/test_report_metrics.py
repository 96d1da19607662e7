"""Rows of attacks, pairs and rounds, from known scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmia.records import ALONE, MEAN, Pair, ScoredAttack, SetScores
from fedmia.records.rows import RoundRow
from fedmia.statistics.auc import auc_estimate, auc_interval
from tests.made_up_runs import report_of
from tests.report.conftest import scored

OVER = "the same rounds without ascent"


def attack_row(attack: ScoredAttack, tests: int = 1, prior: float | None = None) -> Any:
    """The first of so many attacks."""
    others = (replace(attack, name=f"{i}") for i in range(1, tests))
    config = {} if prior is None else {"prior": prior}
    return report_of(attack, *others, config=config).attacks[0]


def test_attack_row__threshold_ignores_the_scored_images() -> None:
    attack = scored("similarity", 0.8, 60, 200, 1)
    moved = replace(attack, scores_members=attack.scores_members + 5)
    assert attack_row(attack).threshold == attack_row(moved).threshold
    other = replace(attack, known_members=attack.known_members + 5)
    assert attack_row(attack).threshold != attack_row(other).threshold


def test_attack_row__float32_scores_give_the_same_numbers_as_float64() -> None:
    # Neighbouring float32 values: their midpoint exists in float64 alone.
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2))
    sides = np.full(4, high), np.full(10, low)
    known = {"known_members": np.full(3, high), "known_nonmembers": np.full(3, low)}
    attack = ScoredAttack("similarity", "", "", "", *sides, **known)
    assert attack_row(attack, 1).accuracy == 1.0


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
            assert value == pytest.approx(0.02 * tpr / named, abs=2e-6)
    assert plain.precision_at_prior is None is plain.precision_at_prior_ci
    assert replace(row, precision_at_prior=None, precision_at_prior_ci=None) == plain


def test_rounds__leakage_is_of_members_over_non_members() -> None:
    """Two of three members over both others, one between: 5 of 6 pairs; none where a side lacks."""
    members, others = np.array([3.0, 4.0, 1.5]), np.array([1.0, 2.0])
    whole = ScoredAttack("a", "", "", "", members, others)
    empty = replace(whole, scores_members=members[:0]), replace(whole, scores_nonmembers=others[:0])
    attacks = {"whole": whole, "none": empty[0], "alone": empty[1]}
    bare = RoundRow(round=7, under_attack=True, loss=1.5, knn=0.25)
    more: Any = {"leakage": {7: attacks}, "layers": {7: {"layer1": whole}}}
    (row,) = report_of(whole, rounds=[bare], **more).rounds
    assert (row.round, row.under_attack, row.loss, row.knn) == (7, True, 1.5, 0.25)
    assert row.leakage == pytest.approx({"whole": 5 / 6, "none": None, "alone": None}, abs=1e-6)
    assert row.layers == pytest.approx({"layer1": 5 / 6}, abs=1e-6)
    ci: Any = row.leakage_ci
    assert ci["whole"] == pytest.approx(auc_interval(auc_estimate(members, others)), abs=1e-6)
    assert ci["none"] is None is ci["alone"]


@pytest.mark.parametrize(
    ("aucs", "more", "words"),
    [
        ((0.9, 0.5), 0, f"ascent adds +0.41 [+0.34, +0.48] AUC over {OVER}"),
        ((0.5, 0.9), 0, f"ascent finds less than {OVER}"),
        ((0.57, 0.5), 80, "nothing measurable"),  # by the simultaneous interval
    ],
)
def test_pairs__add_or_tell_less(aucs: tuple[float, float], more: int, words: str) -> None:
    """Of an attack under attack, which the verdict names with its pair; `more` widen its family."""
    attack, control = (scored("ascent", auc, 150, 300, i) for i, auc in enumerate(aucs))
    attack = replace(attack, under_attack=True, act="ascent")
    zero = Pair(attack, replace(control, name="ascent-zero"), OVER)
    other = scored("a", 0.7, 150, 300, 9)
    others = [Pair(other, scored("b", 0.5, 150, 300, 8), "no such")] * more
    report = report_of(attack, pairs=[zero, *others])
    row: Any = report.paired[0]
    assert row.difference == pytest.approx(row.auc - row.auc_control, abs=2e-6)
    assert row.ci[0] > row.low and row.ci[1] < row.high and row.over == OVER
    assert report.family.intervals_controls == 2 + more
    if aucs[0] > 0.5:
        assert words in report.verdict
    else:
        assert row.high < 0 and words not in report.verdict


def test_pairs__an_attack_adds_nothing_over_itself() -> None:
    attack = scored("ascent", 0.7, 40, 60, 0)
    zero = Pair(attack, replace(attack, name="ascent-zero"), OVER)
    row: Any = report_of(attack, pairs=[zero]).paired[0]
    assert row.difference == 0 and row.ci == pytest.approx((0, 0), abs=0.02)


def test_sets__beside_their_control_and_with_one_family() -> None:
    judged = np.array([[5.0, 1.0], [6.0, 2.0]]), np.array([[1.0, 3.0], [2.0, 0.0], [7.0, 4.0]])
    control = {"ascent-static-zero": (judged[0][:, 1], judged[1][:, 1])}
    one = SetScores("ascent-static", ALONE, 2, judged[0][:, 0], judged[1][:, 0], control)
    attack = scored("ascent-static", 0.6, 40, 60, 0)
    row: Any = report_of(attack, sets=[one, replace(one, judged=MEAN)]).sets[0]
    (zero,) = row.controls
    assert (zero.name, row.n_member_sets, row.n_nonmember_sets) == ("ascent-static-zero", 2, 3)
    assert row.auc == pytest.approx(4 / 6, abs=1e-6)  # 5 and 6 over 1 and 2, under 7
    assert zero.auc == pytest.approx((1 + 1) / 6, abs=1e-6)  # 1 and 2 over 0 alone
    assert zero.difference == pytest.approx(2 / 6, abs=1e-6)
    low, high = zero.difference_ci
    assert low < 2 / 6 < high and row.low < row.auc_ci[0] <= row.auc


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"members": np.array([0.0, np.nan])}, "1 of 2"),
        ({"controls": {"zero": (np.zeros(3), np.zeros(2))}}, r"by zero.*expected \(2,\)"),
    ],
)
def test_sets__that_are_broken_are_refused(broken: dict[str, Any], words: str) -> None:
    sets = replace(SetScores("lpla", MEAN, 8, np.zeros(2), np.zeros(2)), **broken)
    with pytest.raises(ValueError, match=f"sets of 'lpla' judged mean: .*{words}"):
        report_of(scored("lpla", 0.6, 40, 60, 0), sets=[sets])
