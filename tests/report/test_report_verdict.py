"""The verdict: order of judgements, and the simultaneous interval decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from fedmia.records import EncoderInfo, Pair, RunScores, ScoredAttack
from fedmia.report.build import build_report
from fedmia.report.paired import over_control
from fedmia.report.plain import plain_verdict
from fedmia.report.tables import paired as table
from fedmia.statistics.auc import difference_interval

Scored = Callable[..., ScoredAttack]


def judge(run: RunScores) -> tuple[str, str]:
    report = build_report(run)
    assert report["verdict"].count(". ") == 0 and report["verdict"].endswith(".")
    return report["verdict"], report["verdict_code"]


def test_verdict__leaks_names_the_strongest_image_attack(run: RunScores) -> None:
    sentence, code = judge(run)
    assert code == "leaks"
    assert sentence.startswith("The encoder leaks membership: combined separates members")
    assert "112 members, 500 non-members" in sentence
    assert "adds nothing measurable over the same rounds without ascent" in sentence


def test_verdict__says_what_ascent_adds_to_its_twin_and_nothing_of_the_loss_before(
    run: RunScores, scored: Scored
) -> None:
    (twin,) = run.pairs
    loss = scored("loss-before", 0.6, 112, 500, 8)
    before = Pair(twin.attack, loss, "the loss before the climb")
    static = replace(before, attack=replace(twin.attack, name="ascent-static"))
    for pairs in ([twin, before, static], [before, static, twin]):
        sentence, _ = judge(replace(run, pairs=pairs))
        assert "adds nothing measurable over the same rounds without ascent" in sentence
        assert "the loss before" not in sentence
    sentence, code = judge(replace(run, pairs=[before, static]))
    assert code == "leaks" and "the loss before" not in sentence and " over " not in sentence
    assert len(table(build_report(replace(run, pairs=[twin, before, static]))).rows) == 3


def test_verdict__a_model_under_attack_is_named_as_such(run: RunScores, scored: Scored) -> None:
    crafted = scored("ascent", 0.97, 112, 500, 1, under_attack=True)
    nothing = scored("internal", 0.5, 112, 500, 2)
    sentence, code = judge(replace(run, attacks=[nothing, crafted], pairs=[]))
    assert code == "leaks" and "on the model under attack" in sentence


def test_verdict__not_established_says_how_far_it_reaches(run: RunScores, scored: Scored) -> None:
    one = [scored("similarity", 0.5, 112, 500, 1)]
    sentence, code = judge(replace(run, attacks=one, controls={}, pairs=[]))
    assert code == "not-established" and "similarity has AUC 0.5" in sentence
    two = [*one, scored("internal", 0.5, 112, 500, 9)]
    sentence, code = judge(replace(run, attacks=two, controls={}, pairs=[]))
    assert code == "not-established" and "2 attacks" in sentence


def test_verdict__a_plain_interval_over_half_is_not_enough(run: RunScores, scored: Scored) -> None:
    weak = scored("similarity", 0.6, 112, 500, 3)
    others = [scored(f"a{i}", 0.5, 112, 500, 60 + i) for i in range(40)]
    crowded = replace(run, attacks=[weak, *others], controls={}, pairs=[])
    row = build_report(crowded)["attacks"][0]
    assert row["auc_ci"][0] > 0.5 > row["auc_ci_simultaneous"][0]
    assert judge(crowded)[1] == "not-established"


def test_verdict__an_attack_counts_beside_its_own_control_alone(
    run: RunScores, scored: Scored
) -> None:
    """An attack at 0.60 whose placebo is at 0.56 is no leak; one with a control at 0.5 is."""
    weak, same = scored("a", 0.6, 112, 500, 3), scored("a", 0.55, 112, 500, 6)
    other = scored("b", 0.5, 112, 500, 8)
    alone = replace(run, attacks=[weak, other], pairs=[], pixels=None)
    own = {"placebo": [same, replace(other, scores_members=other.scores_members)]}
    report = build_report(replace(alone, controls=own))
    row = report["attacks"][0]
    assert row["auc_ci_simultaneous"][0] > 0.5 and row["over_control"]["ci"][0] < 0
    assert report["verdict_code"] == "not-established"
    assert "a adds nothing measurable over its placebo control on the same" in report["verdict"]
    swapped = {"placebo": [replace(same, name="b"), replace(other, name="a")]}
    assert build_report(replace(alone, controls=swapped))["verdict_code"] == "leaks"


def test_over_control__which_control_and_at_which_level(run: RunScores, scored: Scored) -> None:
    attack, own = scored("a", 0.6, 112, 500, 3), scored("a", 0.5, 112, 500, 6)
    both = replace(run, controls={"untrained": [own], "placebo": [replace(own)]})
    untrained = replace(run, controls={"untrained": [own]})
    audit = replace(untrained, encoder=EncoderInfo("a", 1, (), (), 8, (), (), (), "any"))
    rows = [over_control(attack, one, 8) for one in (both, untrained, audit)]
    assert [row and row["control"] for row in rows] == ["placebo", "untrained", "untrained"]
    wide, narrow = (difference_interval(attack.sides, own.sides, 0.9, k) for k in (8, 1))
    assert [row and row["ci"] for row in rows] == [
        pytest.approx(wide), pytest.approx(narrow), pytest.approx(wide)
    ]  # fmt: skip
    fewer = replace(own, scores_members=own.scores_members[:-1])
    for controls in ({}, {"untrained": [fewer]}, {"posers": [own]}, {"placebo": [other(own)]}):
        assert over_control(attack, replace(run, controls=controls), 8) is None


def other(attack: ScoredAttack) -> ScoredAttack:
    return replace(attack, name="another")


def test_verdict__a_refuted_guarantee_is_a_leak(run: RunScores, scored: Scored) -> None:
    none = [scored("a", 0.5, 112, 500, 1)]
    refuted = replace(run, attacks=none, pairs=[])
    with patch("fedmia.report.build.refutation_sentence", lambda *_: "CLAIM REFUTED: too much"):
        report = build_report(refuted)
        shifted = scored("pixels", 0.7, 112, 500, 1).sides
        assert build_report(replace(refuted, pixels=shifted))["verdict_code"] == "shift"
    assert report["verdict_code"] == "leaks" and report["sure"] == "CLAIM REFUTED: too much."
    assert report["verdict"].startswith("CLAIM REFUTED: too much; by the attacks alone, no leakage")
    assert "No leak" not in plain_verdict(report) and "dpsgd" in report["todo"]


def test_verdict__pixels_come_first(run: RunScores, scored: Scored) -> None:
    shifted = scored("pixels", 0.7, 112, 500, 1)
    pixels = (shifted.scores_members, shifted.scores_nonmembers)
    leaky = {"untrained": [scored("similarity", 0.8, 112, 500, 2)]}
    sentence, code = judge(replace(run, pixels=pixels, controls=leaky))
    assert code == "shift"
    assert sentence.startswith("Shift between the sets; leakage not established: ")


def test_verdict__pixels_that_score_members_lower_are_a_shift_too(
    run: RunScores, scored: Scored
) -> None:
    turned = scored("pixels", 0.3, 112, 500, 1)
    sentence, code = judge(replace(run, pixels=(turned.scores_members, turned.scores_nonmembers)))
    assert code == "shift" and "non-members with AUC 0.28 [0.22, 0.35]" in sentence


def test_verdict__names_the_model_that_leaks(run: RunScores, scored: Scored) -> None:
    """The round of a passive attack's model; all in which an active one acted."""
    control = {"untrained": [scored("one", 0.5, 112, 500, 9)]}
    alone = replace(run, controls=control, pairs=[])
    for under, rounds, named in (
        (False, (24,), "500 non-members; on the model of round 24)"),
        (True, (25, 27, 30), "500 non-members; on the model under attack of rounds 25-30)"),
        (False, (), "500 non-members)"),
    ):
        leak = scored("one", 0.9, 112, 500, 1, under_attack=under, rounds=rounds)
        none = scored("one", 0.5, 112, 500, 1, under_attack=under, rounds=rounds)
        for attack, code in ((leak, "leaks"), (none, "not-established")):
            said, found = judge(replace(alone, attacks=[attack]))
            assert named in said and found == code
    sent = scored("all-for-one", 0.9, 112, 500, 1, rounds=(24,), vantage="server")
    assert "; on the updates up to round 24)" in judge(replace(alone, attacks=[sent]))[0]


def test_verdict__a_failed_control_is_named_on_either_side(run: RunScores, scored: Scored) -> None:
    for auc in (0.75, 0.25):
        controls = {"untrained": [scored("similarity", auc, 112, 500, 2)]}
        sentence, code = judge(replace(run, controls=controls))
        assert code == "control-failed"
        assert "similarity under the untrained control" in sentence


def test_verdict__reversed_attack_is_told(run: RunScores, scored: Scored) -> None:
    turned = scored("internal", 0.2, 112, 500, 2)
    sentence, code = judge(replace(run, attacks=[turned], controls={}, pairs=[]))
    assert code == "not-established" and "internal is reversed" in sentence


def test_verdict__pooled_and_interrupted_are_told(run: RunScores) -> None:
    sentence, code = judge(replace(run, pretrain="pooled", interrupted=12))
    assert code == "leaks"
    assert "the server had seen all private images" in sentence
    assert sentence.endswith("the run was interrupted after round 12.")


def test_verdict__no_attack(run: RunScores) -> None:
    sentence, code = judge(replace(run, attacks=[], controls={}, pairs=[]))
    assert (sentence, code) == ("No leakage established: no attack was scored.", "not-established")
