"""The verdict from scores: the simultaneous interval decides, beside an attack's own control."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fedmia.records import Evaluation, Pair
from fedmia.report.build import build_report
from fedmia.report.metrics import OWN, over_control
from fedmia.report.report_tables import details
from fedmia.report.words.card import model_card
from fedmia.report.words.meaning import MEANS, NO_CONTROL
from fedmia.statistics.auc import difference_interval
from tests.report.conftest import alone, make_run, scored
from tests.report.test_report_words import TECHNICAL, cases


def judge(run: Evaluation) -> tuple[str, str]:
    report = build_report(run)
    return report.verdict, report.verdict_code


def test_verdict__says_what_ascent_adds_to_its_twin_and_nothing_of_the_loss_before(
    run: Evaluation,
) -> None:
    (twin,) = run.pairs
    before = Pair(twin.attack, scored("loss-before", 0.6, 112, 500, 8), "the loss before")
    static = replace(before, attack=replace(twin.attack, name="ascent-static"))
    for pairs in ([twin, before, static], [before, static, twin], [before, static]):
        sentence, code = judge(replace(run, pairs=pairs))
        assert code == "leaks" and "the loss before" not in sentence
        assert ("over the same rounds without ascent" in sentence) == (twin in pairs)


def test_verdict__a_plain_interval_over_half_is_not_enough(run: Evaluation) -> None:
    others = [scored(f"a{i}", 0.5, 112, 500, 60 + i) for i in range(9)]
    report = build_report(alone(run, scored("similarity", 0.58, 112, 500, 3), *others))
    row = report.attacks[0]
    assert row.auc_ci[0] > 0.5 > row.low
    assert report.verdict_code == "not-established"


def test_verdict__an_attack_counts_beside_its_own_control_alone(run: Evaluation) -> None:
    """An attack at 0.60 whose placebo is at 0.56 is no leak; one with a control at 0.5 is."""
    weak, same = scored("a", 0.6, 112, 500, 3), scored("a", 0.55, 112, 500, 6)
    other = scored("b", 0.5, 112, 500, 8)
    both = alone(run, weak, other, pixels=None)
    report = build_report(replace(both, controls={"placebo": [same, other]}))
    row = report.attacks[0]
    assert row.low > 0.5 and row.over_control.low < 0
    assert report.verdict_code == "not-established"
    swapped = {"placebo": [replace(same, name="b"), replace(other, name="a")]}
    assert judge(replace(both, controls=swapped))[1] == "leaks"


def test_over_control__which_control_and_at_which_level(run: Evaluation) -> None:
    attack, own = scored("a", 0.6, 112, 500, 3), scored("a", 0.5, 112, 500, 6)
    both = replace(run, controls={"untrained": [own], "placebo": [replace(own)]})
    untrained = replace(run, controls={"untrained": [own]})
    audit = replace(untrained, drawn=False)
    rows = [over_control(attack, one, 8) for one in (both, untrained, audit)]
    assert [row and row.control for row in rows] == ["placebo", "untrained", "untrained"]
    sides = attack.sides, own.sides
    wide, narrow = (difference_interval(*sides, 0.9, k)[0] for k in (8, 1))
    assert [row and row.lower_limit for row in rows] == pytest.approx([wide, narrow, wide])
    bracket = pytest.approx(difference_interval(*sides, 0.95, 8))
    assert [row and (row.low, row.high) for row in rows] == [bracket] * 3
    fewer, other = replace(own, scores_members=own.scores_members[:-1]), replace(own, name="b")
    for controls in ({}, {"untrained": [fewer]}, {"zero": [own]}, {"placebo": [other]}):
        assert over_control(attack, replace(run, controls=controls), 8) is None


def test_over_control__of_sides_that_may_differ_is_over_each_control(run: Evaluation) -> None:
    """A placebo trained on images of the non-members' kind sees a shift the other way round."""
    attack = scored("a", 0.62, 112, 500, 3)
    controls = {n: [scored("a", 0.5, 112, 500, 6 + i)] for i, n in enumerate(OWN)}
    shifted = {**controls, "placebo": [scored("a", 0.45, 112, 500, 6)]}
    whole = alone(run, attack, pixels=None, drawn=False, controls=shifted)
    report = build_report(whole)
    assert report.attacks[0].over_control.control == "reversed placebo"
    assert report.verdict_code != "leaks"
    leak = replace(whole, attacks=[scored("a", 0.7, 112, 500, 3)], controls=controls)
    assert judge(leak)[1] == judge(replace(whole, drawn=True))[1] == "leaks"


def test_verdict__that_no_attack_has_a_control_after_what_was_found(run: Evaluation) -> None:
    for auc, code in ((0.7, "leaks-uncontrolled"), (0.5, "not-established")):
        for seen in (run.pixels, None):
            bare = alone(run, scored("a", auc, 112, 500, 3), pixels=seen, inferences=[])
            report, last = build_report(bare), NO_CONTROL[seen is not None]
            last = MEANS[code] if code == "leaks-uncontrolled" else last
            assert report.verdict_code == code and last in report.means
            assert last in model_card(report)
    untrained = {"untrained": [scored("a", 0.5, 112, 500, 6)]}
    means = build_report(replace(bare, controls=untrained)).means
    assert not any(text in means for text in NO_CONTROL)


@pytest.mark.parametrize(
    ("under", "rounds", "model"),
    [
        (False, (24,), "; on the models up to round 24)"),
        (True, (25, 27, 30), "; on the models under attack of rounds 25-30)"),
        (True, (), "; on the models under attack)"),
        (False, (), "500 non-members)"),
    ],
)
def test_verdict__names_the_model_that_was_scored(
    run: Evaluation, under: bool, rounds: tuple[int, ...], model: str
) -> None:
    for auc, code in ((0.9, "leaks-uncontrolled"), (0.5, "not-established")):
        attack = scored("one", auc, 112, 500, 1, under_attack=under, rounds=rounds)
        verdict, own = judge(alone(run, attack))
        assert model in verdict and own == code


def test_prior__is_said_of_the_attack_that_decides_where_something_follows(run: Evaluation) -> None:
    said = set[str]()
    for code, one in cases(run):
        plain = build_report(one)
        report = build_report(replace(one, config={**one.config, "prior": 0.02}))
        assert report.verdict == plain.verdict and report.verdict_code == code
        assert report.means.startswith(plain.means)
        sentence = report.means.removeprefix(plain.means)
        assert bool(sentence) == (code in ("leaks", "leaks-uncontrolled", "not-established"))
        assert not TECHNICAL.search(sentence)
        if sentence:
            said.add(code)
            assert "2 % of the images" in sentence and "guessing: 2 %" in sentence
            (row,) = (r for r in report.attacks if f" {r.name} names" in sentence)
            right, ci = row.precision_at_prior, row.precision_at_prior_ci
            assert right and ci and ci["0.01"] and right["0.01"] is not None
            values = [100 * v for v in (right["0.01"], *ci["0.01"])]
            words = [float(w) for w in re.findall(r"([0-9.]+) %", sentence)]
            assert words == pytest.approx(
                [2, values[0], 100 - values[0], 95, *values[1:], 2], rel=0.05
            )
    assert len(said) == 3


def test_prior__is_a_column_of_all_numbers_only_where_it_is_given(run: Evaluation) -> None:
    plain, report = (
        details(build_report(replace(run, config=config))) for config in ({}, {"prior": 0.001})
    )
    (head,) = {*report.head} - {*plain.head}
    assert "0.1 %" in head and report.head.index(head) == report.head.index("queries") - 1
    assert {*plain.head} < {*report.head}


def test_prior__too_few_non_members_to_say() -> None:
    few = make_run(n=112, m=60)
    said = build_report(replace(few, config={**few.config, "prior": 0.5})).means
    assert "too few non-members to say how many of those named were used" in said
