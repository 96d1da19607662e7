"""The paper's sentences about ascent on planted climbs and curves: every verdict, and a swap."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind
from sklearn.metrics import roc_auc_score

from fedmia.records import Curves, FloatArray, ScoredAttack
from research.papers.claims.of_ascent import claims

HOLDS, FAILS, UNDECIDED, NOT_RUN = "held", "not held", "undecided", "not run"
FEW, MANY = 20, 600
Claim = Any
UPLOAD, BEFORE, LINE_25 = "Fig. 13, from the upload", "Fig. 13, from before", "Alg. 1, line 25"


def noise(n: int, seed: int = 0) -> FloatArray:
    """The same quantiles whatever the seed, in another order: nothing is left to a draw."""
    values = np.sin(np.arange(1, n + 1))
    return np.random.default_rng(seed).permutation(values - values.mean())


def climbed(members: FloatArray, others: FloatArray, shift: float = 0.0) -> Any:
    """A static climb. Losses at 1 before it, which rise by so much; the attacker's known images
    rise by `shift` more."""
    sides = [np.stack([np.ones(len(r)), 1 + r / 2, 1 + r]) for r in (members, others)]
    scored = ScoredAttack(
        "ascent-static", "", "white_box", "outsider", -members, -others,
        known_members=-members[:40] - shift, known_nonmembers=-others[:40] - shift,
    )  # fmt: skip
    return SimpleNamespace(round=2, scored=scored, members=sides[0], nonmembers=sides[1])


def curved(
    before: tuple[FloatArray, FloatArray],
    sent: tuple[FloatArray, FloatArray],
    after: tuple[FloatArray, FloatArray],
) -> Curves:
    """Two attacked rounds alike; without the ascent every loss stays what it was before."""
    return Curves(
        act="ascent",
        rounds=np.array([3, 4]),
        members=np.stack([after[0]] * 2),
        nonmembers=np.stack([after[1]] * 2),
        control_members=np.stack([before[0]] * 2),
        control_nonmembers=np.stack([before[1]] * 2),
        before_members=before[0],
        before_nonmembers=before[1],
        after_members=sent[0],
        after_nonmembers=sent[1],
    )


def changing(members: float, others: float, n: int = MANY) -> Curves:
    """Uploads at a loss of 5, which changes by so much, give or take 1; before the attack it was
    4."""
    level = np.full(n, 5.0)
    after = level + members + noise(n), level + others + noise(n, 1)
    return curved((level - 1, level - 1), (level, level), after)


def of(place: str, climb: Any = None, curves: Curves | None = None) -> Claim:
    (results,) = [one for one in claims(climb, curves) if one["place"] == place]
    return results


@pytest.mark.parametrize(
    ("members", "others", "verdict"),
    [
        (1 + noise(MANY), 3 + noise(MANY, 1), HOLDS),
        (3 + noise(MANY), 1 + noise(MANY, 1), FAILS),  # members and non-members swapped
        (1 + noise(MANY), 1 + noise(MANY, 1), FAILS),  # by less than 0.55 of the pairs
        (1 + noise(FEW), 1.1 + noise(FEW, 1), UNDECIDED),
        (1 + noise(20_000), 1.06 + noise(20_000, 1), HOLDS),  # by little, of so many for sure
        (np.r_[1 + noise(MANY), np.full(60, 90.0)], 2 + noise(MANY, 1), FAILS),  # means say no
        # Some few images that blow up carry no claim, though the means say so.
        (1 + noise(MANY), np.r_[1 + noise(MANY, 1), np.full(6, 501.0)], FAILS),
        # All but one pair in 600 say so, but one member blew up: the means tell nothing.
        (np.r_[1 + noise(MANY), 5001.0], 3 + noise(MANY, 1), UNDECIDED),
    ],
)
def test_fig_10__every_verdict(members: FloatArray, others: FloatArray, verdict: str) -> None:
    """The loss before the climb stands beside its rise."""
    found = of("Fig. 10", climbed(members, others))
    rise, before = found["numbers"]
    assert found["verdict"] == verdict
    assert rise["members"] == pytest.approx(members.mean())
    assert rise["nonmembers"] == pytest.approx(others.mean())
    assert before["members"] == before["nonmembers"] == 1 and before["auc"] == 0.5


def test_contrast__welch_and_mann_whitney_by_others_hands() -> None:
    draw = np.random.default_rng(3)
    ours, theirs = draw.exponential(1, 40), draw.exponential(3, 90)
    found, truth = of("Fig. 10", climbed(ours, theirs))["numbers"][0], np.repeat([0, 1], [40, 90])
    difference, one = ttest_ind(theirs, ours, equal_var=False), ttest_1samp(ours, 0)
    assert found["difference_ci"] == pytest.approx(tuple(difference.confidence_interval()))
    assert found["members_ci"] == pytest.approx(tuple(one.confidence_interval()))
    assert found["auc"] == pytest.approx(roc_auc_score(truth, np.concatenate([ours, theirs])))
    medians = found["median_members"], found["median_nonmembers"]
    assert medians == pytest.approx((np.median(ours), np.median(theirs)))


@pytest.mark.parametrize(
    ("n", "others", "shift", "verdict", "accuracy", "hindsight"),
    [
        (MANY, 5, 0, HOLDS, 1, 1),
        (MANY, 0, 0, FAILS, None, None),
        (MANY, -5, 0, FAILS, None, 0.5),  # members and non-members swapped
        (MANY, 5, 20, UNDECIDED, 0.5, 1),  # what is known is no guide
        (8, 5, 0, UNDECIDED, 1, 1),  # all right, of so few that it might have been luck
    ],
)
def test_fig_12__every_verdict(
    n: int, others: float, shift: float, verdict: str, accuracy: float | None,
    hindsight: float | None,
) -> None:  # fmt: skip
    found = of("Fig. 12", climbed(noise(n), others + noise(n, 1), shift))
    numbers = found["numbers"][0]
    assert found["verdict"] == verdict
    assert numbers["hindsight_before"] == 0.5  # all losses were equal
    assert accuracy is None or numbers["accuracy"] == accuracy
    assert hindsight is None or numbers["hindsight"] == pytest.approx(hindsight, abs=0.01)
    assert ("hindsight" in found["remark"]) == (verdict == UNDECIDED)


@pytest.mark.parametrize(
    ("curves", "upload", "before"),
    [
        # Uploads were at 5, losses before the attack at 4: down to 4.5 is up by half.
        (changing(-0.5, 2), HOLDS, FAILS),
        (changing(-2, 2), HOLDS, HOLDS),
        (changing(-2, -0.5), HOLDS, HOLDS),
        (changing(-2, 3), HOLDS, HOLDS),  # "potentially increasing"
        (changing(-0.5, -2), FAILS, FAILS),  # members and non-members swapped
        (changing(0.5, 2), FAILS, FAILS),  # members' loss rises
        (changing(-2, -2), FAILS, FAILS),
        (changing(0, 3), UNDECIDED, FAILS),  # members' loss stays
        (changing(-0.1, 2, 5), UNDECIDED, UNDECIDED),
    ],
)
def test_fig_13__every_verdict(curves: Curves, upload: str, before: str) -> None:
    assert of(UPLOAD, None, curves)["verdict"] == upload
    assert of(BEFORE, None, curves)["verdict"] == before


def test_fig_13__numbers_with_ascent_and_without() -> None:
    curves = changing(-2, 3)
    curves = replace(curves, members=curves.members + [[0.0], [4.0]])  # more in the second round
    curves = replace(curves, control_members=np.stack([np.full(MANY, 3.0), np.full(MANY, 1.0)]))
    for place, attacked, control in ((UPLOAD, (-2, 3), (-1, 0)), (BEFORE, (1, 4), (-2, 0))):
        with_ascent, without = of(place, None, curves)["numbers"]
        assert (with_ascent["members"], with_ascent["nonmembers"]) == pytest.approx(attacked)
        assert (without["members"], without["nonmembers"]) == control
    alone = replace(curves, control_members=None)
    assert len(of(UPLOAD, None, alone)["numbers"]) == 1


@pytest.mark.parametrize(
    ("curves", "verdict", "supported"),
    [
        (changing(-2, -4), HOLDS, "line 25"),
        (changing(-4, -2), FAILS, "Sec. V-B4"),  # members and non-members swapped
        (changing(-2, -2), FAILS, "neither"),
        (changing(-0.9, 0), FAILS, "Sec. V-B4"),  # since before the attack nothing fell
        (changing(-2, 4), HOLDS, "both"),  # one falls, the other rises by more
        (changing(-2, -2.1, 5), UNDECIDED, "neither"),
    ],
)
def test_line_25__against_the_section(curves: Curves, verdict: str, supported: str) -> None:
    found = of(LINE_25, None, curves)
    assert found["verdict"] == verdict
    assert found["remark"] == f"this run supports {supported}"


def test_claims__say_why_they_were_not_run() -> None:
    climb, curves = climbed(noise(9), 2 + noise(9)), changing(-2, -1)
    overflowed = replace(curves, members=np.full_like(curves.members, np.nan))
    unread = replace(curves, after_members=None, after_nonmembers=None)
    for none in (None, unread, replace(curves, act="inversion"), overflowed):
        found = claims(climb, none)
        assert [c["verdict"] == NOT_RUN for c in found] == [False, False, True, True, True]
        assert all("no client's ascent" in c["remark"] and not c["numbers"] for c in found[2:])
    blank: Any = SimpleNamespace(**{**vars(climb), "members": None})
    one = climbed(noise(9)[:1], noise(9))
    for absent in (None, blank, one, climbed(noise(9) + np.nan, noise(9))):
        found = claims(absent, curves)
        assert [c["verdict"] == NOT_RUN for c in found] == [True, True, False, False, False]
        assert all("no static climb" in c["remark"] for c in found[:2])
