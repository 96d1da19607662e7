"""Who can do it, on which model, beside which control: of each attack, from its own row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedmia.records import (
    DatasetInferenceResults,
    Evaluation,
    Pair,
    Probe,
    ScoredAttack,
)
from fedmia.records.rows import Report
from fedmia.report import report_tables
from fedmia.report.build import build_report
from fedmia.report.codes import CODES, LEAKS, UNTESTED
from fedmia.report.judgement import strongest_leaks, verdict_code
from fedmia.report.words.attacks import who
from fedmia.report.words.card import model_card
from fedmia.report.words.meaning import NO_CONTROL
from fedmia.report.words.verdict import texts
from fedmia.settings import registry
from fedmia.threat import ACCESS, VANTAGE
from tests.report.conftest import AUDIT, GONE, alone, compared, scored, shown

Variant = tuple[str, str, str, bool]  # name, access, vantage, whether updates were crafted


def attack(auc: float, name: str = "a", seed: int = 1, **more: object) -> ScoredAttack:
    return scored(name, auc, 112, 500, seed, **{"rounds": (24,), **more})


def bare(report: Report) -> str:
    """What the verdict means, without that there is no control."""
    return report.means.removeprefix(NO_CONTROL[False]).strip()


def by_code(run: Evaluation) -> dict[str, Report]:
    """A report of each code with one attack `a`; of some codes several."""
    high, half = attack(0.8), attack(0.5)
    placebo, same = ({"placebo": [attack(auc, seed=6)]} for auc in (0.5, 0.55))
    one = alone(run, high, pixels=None, clients=[], rounds=())
    silent = replace(one, attacks=(half,))
    useless = {"knn": Probe(0.5, 300), "linear": Probe(0.41, 300)}
    runs = {
        "leaks": replace(one, controls=placebo),
        "leaks-uncontrolled": one,
        "not-established": silent,
        "not-established over 0.5": replace(one, attacks=(attack(0.6, seed=3),), controls=same),
        "collapsed": replace(silent, health=GONE, utility=useless),
        "shift": replace(one, pixels=high.sides),
        "control-failed": replace(one, controls={"placebo": [high]}),
        "no-verdict": replace(one, interrupted=0),
    }
    reports = {code: build_report(each) for code, each in runs.items()}
    assert {code.partition(" ")[0] for code in reports} == {*CODES} - {UNTESTED}
    codes = [report.verdict_code for report in reports.values()]
    assert codes == [case.partition(" ")[0] for case in reports]
    return reports


def variants() -> Iterator[Variant]:
    """Each attack by its own threat, then each threat there is, with and without crafted updates;
    the last ones are readings of other attacks."""
    for name in registry.names("attack"):
        needs = registry.load("attack", name).needs
        yield name, needs.access, needs.vantage, name.startswith("ascent-a") or name == "ascent"
    for access, vantage, crafted in itertools.product(ACCESS, VANTAGE, (False, True)):
        yield "own", access, vantage, crafted
        yield "own-level", access, vantage, crafted


def vary(report: Report, variant: Variant) -> Report:
    """The report as if its attack were another."""
    name, access, vantage, crafted = variant
    rounds = [25, 27, 30] if crafted else [24]
    head: dict[str, Any] = {
        "name": name, "access": access, "vantage": vantage, "under_attack": crafted,
        "rounds": rounds, "round": rounds[-1], "reading": "level" if "-" in name else None,
    }  # fmt: skip
    rows = [replace(row, **head) for row in report.attacks]
    base = replace(rows[0], name="own", auc=0.45, low=0.4, high=0.55, reading="rise")
    rows += [base] * (name == "own-level")
    controls = {**report.controls}
    if "placebo" in controls:
        controls["placebo"] = [replace(row, **head) for row in controls["placebo"]]
    return reworded(replace(report, attacks=rows, controls=controls))


def reworded(report: Report) -> Report:
    report = replace(report, verdict_code=verdict_code(report))
    sentences: dict[str, Any] = texts(report, "none")
    return replace(report, **sentences)


def test_sentences__of_each_attack_vantage_and_code_are_of_its_own_row(run: Evaluation) -> None:
    for (case, report), variant in itertools.product(by_code(run).items(), variants()):
        name, access, vantage, crafted = variant
        one = vary(report, variant)
        assert one.verdict_code == report.verdict_code
        texts = "\n".join([one.verdict, one.means, model_card(one)])
        asks, holds = "can use the model", "has the weights of the model"
        outside = vantage == "outsider" and not crafted
        assert outside or not (asks in texts or holds in texts)
        assert access == "black_box" or asks not in texts
        assert not crafted or not any(
            f"{on} model of round" in texts for on in ("on the", "of the")
        )
        table = report_tables.attacks(one, readings=False)
        first = [str(line[0]).removesuffix(" *") for line in table.rows]
        if case not in ("shift", "no-verdict"):
            assert name in one.verdict and name in first
        if case in LEAKS or case.endswith("over 0.5"):
            auc = one.attacks[0].auc
            assert auc is not None
            assert one.verdict.startswith(f"The attack {name} separates")
            assert f"AUC {auc:.2f} " in one.verdict
            assert bare(one).startswith(who(one.attacks[0]))
            assert f"{name} picks the right one {100 * auc:.0f} times" in one.means
            assert (asks in one.means) == (outside and access == "black_box")
            assert (holds in one.means) == (outside and access == "white_box")
            assert ("sends crafted updates" in one.means) == crafted
            assert ("models under attack of rounds 25-30" in one.verdict) == crafted
            assert ("send crafted updates" in model_card(one)) == crafted


def crafted_run(run: Evaluation, level: float, before: float, *passive: ScoredAttack) -> Evaluation:
    """An ascent and its level under attack, the latter beside the loss before, and others."""
    act: dict[str, Any] = {
        "access": "white_box", "under_attack": True, "rounds": (3, 4, 5), "act": "ascent",
    }  # fmt: skip
    ascent = attack(0.5, "ascent", 2, reading="rise", **act)
    reads = attack(level, "ascent-level", 3, reading="level", **act)
    noisy = reads.scores_members + (attack(0.5, seed=9).scores_members * 0.1)
    loss = replace(reads, name="loss-before", scores_members=noisy - 3 * (level - before))
    untrained = [attack(0.5, a.name, 40 + i) for i, a in enumerate((*passive, ascent, reads))]
    return alone(
        run, *passive, ascent, reads, pixels=None, controls={"untrained": untrained},
        pairs=[Pair(reads, loss, "the loss before the attack")],
    )  # fmt: skip


def named(report: Report) -> list[str]:
    return [row.name for row in strongest_leaks(report)]


def test_crafted__what_its_control_finds_as_well_is_not_named_beside_a_passive_leak(
    run: Evaluation,
) -> None:
    passive = attack(0.64, "lpla", 5, vantage="outsider", rounds=(5,))
    idle = build_report(crafted_run(run, 0.79, 0.79, passive))
    assert idle.verdict_code == "leaks" and named(idle) == ["lpla"]
    assert "ascent" not in idle.verdict + idle.means
    adds = build_report(crafted_run(run, 0.79, 0.6, passive))
    assert named(adds) == ["lpla", "ascent-level"]
    on_model, on_attacked = adds.verdict.split(" Under attack, ")
    assert "lpla" in on_model and "on the model of round 5)" in on_model
    assert "ascent-level" in on_attacked and "under attack of rounds 3-5" in on_attacked
    only = build_report(crafted_run(run, 0.79, 0.79))
    assert named(only) == ["ascent-level"]
    assert "The models under attack leak" in only.verdict
    assert "adds nothing measurable over the loss before the attack" in only.verdict
    assert "crafted updates add nothing" in only.means
    for report in (adds, only):
        terminal, page = shown(report)
        assert "ascent-level *" in terminal and "Other readings" not in terminal + page


def test_white_box__a_black_box_has_its_own_number(run: Evaluation) -> None:
    white = attack(0.8, "combined", 1, access="white_box", vantage="outsider")
    black = attack(0.72, "similarity", 2, vantage="outsider")
    untrained = [attack(0.5, a.name, 60 + i) for i, a in enumerate((white, black))]
    report = build_report(alone(run, white, black, controls={"untrained": untrained}, pixels=None))
    assert named(report) == ["combined", "similarity"]
    first, second = report.means.split("Someone who can use the model of round 24 ")
    assert "the weights of the model of round 24" in first and "similarity" not in first
    assert "combined" not in second
    for row in report.attacks:
        count = f"{row.name} picks the right one {100 * (row.auc or 0):.0f} times"
        assert count in (first if row.name == "combined" else second)


def test_sets__who_can_ask_comes_from_the_attacks_threat(run: Evaluation) -> None:
    row = compared(0, 0.0005, 20, 50, 0.4)
    silent = alone(run, attack(0.5), pixels=None)
    for access, vantage in itertools.product(ACCESS, VANTAGE):
        result = DatasetInferenceResults("own", "", [row], [0.7], access, vantage)
        report = build_report(replace(silent, inferences=[result]))
        (one,) = report.dataset_inference
        assert (one.access, one.vantage) == (access, vantage)
        assert bare(report).startswith(f"{who(one)}, and has a whole set")


def test_forms__of_one_encoder_with_one_auc_have_one_first_sentence(run: Evaluation) -> None:
    uncontrolled = alone(run, attack(0.6, rounds=()), pixels=None, encoder=AUDIT, drawn=False)
    weights = replace(uncontrolled, controls={"untrained": [attack(0.58, seed=6)]})
    clean = replace(uncontrolled, controls={"untrained": [attack(0.45, seed=7)]})
    reports = [build_report(one) for one in (uncontrolled, weights, clean)]
    codes = ["leaks-uncontrolled", "not-established", "leaks"]
    assert [report.verdict_code for report in reports] == codes
    for said in ([report.verdict for report in reports], [bare(report) for report in reports]):
        firsts = {text.split(". ")[0] for text in said}
        rests = {text.split(". ")[1] for text in said}
        assert len(firsts) == 1 and len(rests) == 3


def test_reversed__an_auc_under_half_is_said_under_each_code(run: Evaluation) -> None:
    for case, report in by_code(run).items():
        (row,) = report.attacks
        turned = replace(row, name="dov4mm", auc=0.38, low=0.37, high=0.4)
        both = reworded(replace(report, attacks=[row, turned]))
        if case != "no-verdict":
            assert "; dov4mm is reversed (AUC under 0.5" in both.verdict
        assert "By dov4mm, members score lower" in both.means
        terminal, page = shown(both)
        for text in (terminal, page):
            assert "dov4mm !" in text and "!: the AUC lies wholly under 0.5" in text
        assert "!" not in shown(report)[0]
