"""Scores of sets: the means of their images, those judged alone, the control on the same sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedmia.evaluation.steps.sets import set_scores
from fedmia.records import ALONE, MEAN, Pair, ScoredAttack

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


def test_set_scores__alone_stands_beside_the_mean() -> None:
    judged = np.array([[5.0, 1.0], [6.0, 2.0]]), np.array([[1.0, 3.0], [2.0, 0.0], [7.0, 4.0]])
    one = attack("ascent-static", [0] * 4, [0] * 6)
    judged_alone = replace(one, sets_members=judged[0], sets_nonmembers=judged[1])
    mean, alone = set_scores(SETS, [judged_alone], {})
    assert (mean.judged, alone.judged) == (MEAN, ALONE) and not mean.controls
    (zero,) = alone.controls
    assert zero == "ascent-static-zero" and alone.nonmembers.tolist() == [1.0, 2.0, 7.0]
    assert alone.controls[zero][1].tolist() == [3.0, 0.0, 4.0]
