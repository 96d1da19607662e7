"""The verdict from scores: the simultaneous interval decides, beside an attack's own control."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fedmia.records import Evaluation, Pair
from fedmia.report.build import build_report
from fedmia.report.page import page
from fedmia.statistics.auc import difference_interval
from tests.report.conftest import (
    TECHNICAL,
    Case,
    alone,
    card,
    make_run,
    placed,
    scored,
    section,
    tables,
)

OWN = ("placebo", "untrained", "earlier-model", "last-model")  # controls on the same images


def judge(run: Evaluation) -> tuple[str, str]:
    report = build_report(run)
    return report.verdict, report.verdict_code


@pytest.mark.parametrize(
    ("attacks", "more", "code", "said"),
    [
        ({"a": 0.53}, {}, "not-established", ": a has"),
        ({"a": 0.7}, {}, "leaks", "a separates"),
        ({"a": 0.6, "b": 0.7}, {}, "leaks", "b separates"),
        ({"a": 0.7, "b": 0.3}, {}, "leaks", "; b is reversed"),
        ({"a": 0.45}, {}, "not-established", ": a has AUC 0.45"),
        ({"a": 0.3, "b": 0.2}, {}, "not-established", "; a, b are reversed"),
        ({"a": 0.3, "b": 0.5}, {}, "not-established", "; a is reversed"),
        ({"a": 0.7}, {"own": {"c": 0.65}}, "control-failed", ": c under"),
        ({"a": 0.7}, {"zero": {"c": 0.65}}, "leaks", "a "),
        # farthest from a half, either side
        ({"a": 0.7}, {"untrained": {"c": 0.65, "d": 0.25}}, "control-failed", ": d under"),
        ({"a": 0.7}, {"untrained": {"c": 0.65}, "pixels": 0.3}, "shift", "pixels"),
        ({"a": 0.7}, {"pixels": 0.7}, "shift", "pixels"),
        ({"a": 0.7}, {"pixels": 0.52}, "leaks", "a separates"),
        ({"a": 0.555}, {"placebo": {"a": 0.555}}, "not-established", "placebo"),
        ({"a": 0.7}, {"untrained": {}}, "leaks-uncontrolled", "a separates"),
        ({"a": 0.8, "b": 0.65}, {"untrained": {"b": 0.5}}, "leaks", "b separates"),
    ],
)
def test_verdict__of_attacks_and_controls(
    run: Evaluation, attacks: dict[str, float], more: dict[str, Any], code: str, said: str
) -> None:
    """Each attack has an untrained control at 0.5, where none is named."""
    told = {"untrained": dict.fromkeys(attacks, 0.5)} | more
    pixels = told.pop("pixels", None)
    controls = {
        name: [placed(one, auc) for one, auc in aucs.items()] for name, aucs in told.items()
    }
    report = build_report(alone(
        run, *(placed(name, auc) for name, auc in attacks.items()), controls=controls,
        pixels=pixels and placed("", pixels).sides,
    ))  # fmt: skip
    assert report.verdict_code == code and said in report.verdict
    assert ("reversed" in report.verdict) == ("reversed" in said)


def test_verdict__goes_by_the_one_sided_limit_within_its_brackets(run: Evaluation) -> None:
    report = build_report(alone(run, placed("a", 0.555), pixels=None))
    (row,) = report.attacks
    assert row.low < 0.5 < row.lower_limit and report.verdict_code == "leaks-uncontrolled"
    assert f"lower limit {row.lower_limit:.3f}; 112 members, 500 non-members)" in report.verdict


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
    eight = [attack, *(scored(f"b{i}", 0.5, 112, 500, 20 + i) for i in range(7))]

    def over(controls: Any, **more: Any) -> Any:
        whole = alone(run, *eight, pixels=None, controls=controls, **more)
        return build_report(whole).attacks[0].over_control

    both, untrained = {"untrained": [own], "placebo": [replace(own)]}, {"untrained": [own]}
    rows = [over(both), over(untrained), over(untrained, drawn=False)]
    assert [row.control for row in rows] == ["placebo", "untrained", "untrained"]
    sides = attack.sides, own.sides
    wide, narrow = (difference_interval(*sides, 0.9, k)[0] for k in (8, 1))
    assert [r.lower_limit for r in rows] == pytest.approx([wide, narrow, wide], abs=1e-6)
    bracket = pytest.approx(difference_interval(*sides, 0.95, 8), abs=1e-6)
    assert [(row.low, row.high) for row in rows] == [bracket] * 3
    fewer, other = replace(own, scores_members=own.scores_members[:-1]), replace(own, name="b")
    for controls in ({}, {"untrained": [fewer]}, {"zero": [own]}, {"placebo": [other]}):
        assert over(controls) is None


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
    none, pixels = "There is no control: ", "The only control is the pixels, "
    for auc, code in ((0.7, "leaks-uncontrolled"), (0.5, "not-established")):
        for seen in (run.pixels, None):
            bare = alone(run, scored("a", auc, 112, 500, 3), pixels=seen, inferences=[])
            report, last = build_report(bare), none if seen is None else pixels
            last = "This may be a leak, or the two" if code == "leaks-uncontrolled" else last
            assert report.verdict_code == code and last in report.means
            assert last in card(report)
    untrained = {"untrained": [scored("a", 0.5, 112, 500, 6)]}
    means = build_report(replace(bare, controls=untrained)).means
    assert none not in means and pixels not in means


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


def test_prior__is_said_of_the_attack_that_decides_where_something_follows(
    of_codes: list[Case],
) -> None:
    said = set[str]()
    for code, one, plain in of_codes:
        if code in said:
            continue
        said.add(code)
        report = build_report(replace(one, config={**one.config, "prior": 0.02}))
        assert report.verdict == plain.verdict and report.verdict_code == code
        assert report.means.startswith(plain.means)
        sentence = report.means.removeprefix(plain.means)
        assert bool(sentence) == (code in ("leaks", "leaks-uncontrolled", "not-established"))
        assert not TECHNICAL.search(sentence)
        if sentence:
            assert "2 % of the images" in sentence and "guessing: 2 %" in sentence
            (row,) = (r for r in report.attacks if f" {r.name} names" in sentence)
            right, ci = row.precision_at_prior, row.precision_at_prior_ci
            assert right and ci and ci["0.01"] and right["0.01"] is not None
            values = [100 * v for v in (right["0.01"], *ci["0.01"])]
            words = [float(w) for w in re.findall(r"([0-9.]+) %", sentence)]
            assert words == pytest.approx(
                [2, values[0], 100 - values[0], 95, *values[1:], 2], rel=0.05
            )


def test_prior__is_a_column_of_all_numbers_only_where_it_is_given(run: Evaluation) -> None:
    def heads(config: Any) -> list[str]:
        attacks = section(page(build_report(replace(run, config=config)), {}), "attacks")
        (details,) = (table for table in tables(attacks) if "queries" in table[0])
        return details[0]

    plain, given = heads({}), heads({"prior": 0.001})
    (head,) = {*given} - {*plain}
    assert "0.1 %" in head and given.index(head) == given.index("queries") - 1
    assert {*plain} < {*given}


def test_prior__too_few_non_members_to_say() -> None:
    few = make_run(n=112, m=60)
    said = build_report(replace(few, config={**few.config, "prior": 0.5})).means
    assert "too few non-members to say how many of those named were used" in said
