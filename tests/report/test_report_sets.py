"""Sets in the report: AUCs by hand, the control on the same sets, scores that are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmia.evaluation.steps.sets import set_scores
from fedmia.records import ALONE, MEAN, Evaluation, Pair, ScoredAttack, SetScores
from fedmia.report.build import build_report
from fedmia.report.metrics import set_row

SETS = np.array([[0, 3], [1, 2]]), np.array([[4, 0], [2, 1], [5, 3]])


def attack(name: str, members: list[float], others: list[float], **more: object) -> ScoredAttack:
    made = ScoredAttack(name, "", "black_box", "outsider", np.array(members), np.array(others))
    return replace(made, **more)  # type: ignore[arg-type]


def test_set_scores__mean_of_the_sets_own_images() -> None:
    scored = attack("similarity", [1, 2, 4, 8], [0, 10, 20, 30, 40, 50])
    (scores,) = set_scores(SETS, [scored], {})
    how = scores.attack, scores.judged, scores.size, scores.controls
    assert how == ("similarity", MEAN, 2, {})
    np.testing.assert_array_equal(scores.members, [4.5, 3.0])
    np.testing.assert_array_equal(scores.nonmembers, [20.0, 15.0, 40.0])


def test_set_scores__a_control_of_the_same_sets() -> None:
    """The attack's own twin before a placebo, a placebo before the untrained model."""
    one = attack("ascent", [1, 2, 4, 8], [0, 10, 20, 30, 40, 50])
    zero = attack("ascent-zero", [0, 0, 1, 1], [5, 4, 3, 2, 1, 0])
    other, more = replace(one, name="similarity"), replace(one, name="internal")
    controls = {
        "untrained": [replace(zero, name=n) for n in ("ascent", "similarity", "internal")],
        "placebo": [attack("similarity", [3, 3, 3, 3], [0] * 6)],
    }
    scores = set_scores(SETS, [one, other, more], controls, [Pair(one, zero, "none")])
    assert [[*s.controls] for s in scores] == [["ascent-zero"], ["placebo"], ["untrained"]]
    np.testing.assert_array_equal(scores[0].controls["ascent-zero"][1], [3.0, 3.5, 1.0])
    np.testing.assert_array_equal(scores[1].controls["placebo"][0], [3.0, 3.0])


def test_set_scores__every_pair_is_a_control_of_means_and_the_twin_of_an_act() -> None:
    """An attack is paired with itself without its act, and after that with the loss before it."""
    alone = {"sets_members": np.array([[5.0, 1.0], [6.0, 2.0]]), "sets_nonmembers": np.ones((3, 2))}
    one = attack("ascent", [1, 2, 4, 8], [0, 10, 20, 30, 40, 50], **alone)
    zero = attack("ascent-zero", [0, 0, 1, 1], [5, 4, 3, 2, 1, 0])
    before = attack("loss-before", [9, 9, 9, 9], [9] * 6)
    pairs = [Pair(one, zero, "none"), Pair(one, before, "the loss before the climb")]
    mean, whole = set_scores(SETS, [one], {}, pairs)
    assert [*mean.controls] == ["ascent-zero", "loss-before"]
    assert [*whole.controls] == ["ascent-zero"]
    np.testing.assert_array_equal(mean.controls["ascent-zero"][0], [0.5, 0.5])
    assert [c.name for c in set_row(mean, 1).controls] == [*mean.controls]


def test_set_scores__alone_stands_beside_the_mean() -> None:
    judged = np.array([[5.0, 1.0], [6.0, 2.0]]), np.array([[1.0, 3.0], [2.0, 0.0], [7.0, 4.0]])
    one = attack("ascent-static", [0] * 4, [0] * 6)
    judged_alone = replace(one, sets_members=judged[0], sets_nonmembers=judged[1])
    mean, alone = set_scores(SETS, [judged_alone], {})
    assert (mean.judged, alone.judged) == (MEAN, ALONE) and not mean.controls
    row = set_row(alone, 2)
    (control,) = row.controls
    assert control.name == "ascent-static-zero"
    assert row.auc == pytest.approx(4 / 6)  # 5 and 6 over 1 and 2, under 7
    assert control.auc == pytest.approx((1 + 1) / 6)  # 1 and 2 over 0 alone
    assert control.difference == pytest.approx(2 / 6)
    low, high = control.difference_ci
    assert low < 2 / 6 < high
    assert row.low < row.auc_ci[0] <= row.auc


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"members": np.array([0.0, np.nan])}, "1 of 2"),
        ({"controls": {"zero": (np.zeros(3), np.zeros(2))}}, r"by zero.*expected \(2,\)"),
    ],
)  # fmt: skip
def test_report__refuses_broken_sets(
    run: Evaluation, broken: dict[str, object], words: str
) -> None:
    sets = replace(SetScores("lpla", MEAN, 8, np.zeros(2), np.zeros(2)), **broken)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"sets of 'lpla' judged mean: .*{words}"):
        build_report(replace(run, sets=[sets]))
