"""Who can do it, on which model, beside which control: of each attack, from its own row."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from fedmia.records import DatasetInferenceResults, Evaluation, Pair, Probe, ScoredAttack
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.codes import CODES, LEAKS, UNTESTED
from fedmia.report.page import page
from fedmia.threat import ACCESS, VANTAGE
from tests.report.conftest import AUDIT, GONE, alone, card, compared, scored, section, shown, tables

NO_CONTROL = "There is no control: no attack was tried where nothing can leak."
ASKS, HOLDS = "can use the model", "has the weights of the model"


def attack(auc: float, name: str = "a", seed: int = 1, **more: object) -> ScoredAttack:
    return scored(name, auc, 112, 500, seed, **{"rounds": (24,), **more})


def bare(report: Report) -> str:
    """What the verdict means, without that there is no control."""
    return report.means.removeprefix(NO_CONTROL).strip()


def by_code(run: Evaluation) -> dict[str, Evaluation]:
    """Runs of each code with one attack `a`; of some codes several."""
    high, half = attack(0.8), attack(0.5)
    placebo, same = ({"placebo": [attack(auc, seed=6)]} for auc in (0.5, 0.55))
    one = alone(run, high, pixels=None, clients=[], rounds=(), curves=None, leakage={}, layers={})
    silent = replace(one, attacks=(half,))
    useless = {"knn": Probe(0.5, 300), "linear": Probe(0.41, 300)}
    return {
        "leaks": replace(one, controls=placebo),
        "leaks-uncontrolled": one,
        "not-established": silent,
        "not-established over 0.5": replace(one, attacks=(attack(0.6, seed=3),), controls=same),
        "collapsed": replace(silent, health=GONE, utility=useless),
        "shift": replace(one, pixels=high.sides),
        "control-failed": replace(one, controls={"placebo": [high]}),
        "no-verdict": replace(one, interrupted=0),
    }


def vary(run: Evaluation, name: str, access: str, vantage: str, crafted: bool) -> Evaluation:
    """The run as if its attack were another; one with a hyphen is a reading of the other."""
    rounds = (25, 27, 30) if crafted else (24,)
    head: dict[str, Any] = {
        "name": name, "access": access, "vantage": vantage, "under_attack": crafted,
        "rounds": rounds, "reading": "level" if "-" in name else "",
    }  # fmt: skip
    attacks = [replace(one, **head) for one in run.attacks]
    if "-" in name:
        attacks.append(replace(attack(0.45), name=name.partition("-")[0], reading="rise"))
    controls = {n: [replace(one, **head) for one in some] for n, some in run.controls.items()}
    return replace(run, attacks=attacks, controls=controls)


THREATS = [*itertools.product(ACCESS, VANTAGE, (False, True))]


@pytest.mark.parametrize("at", range(8))
def test_sentences__of_each_threat_and_code_are_of_the_attacks_own_row(
    run: Evaluation, at: int
) -> None:
    """Each code with every fourth threat, so that every second code has each threat."""
    case, one = [*by_code(run).items()][at]
    assert {c.partition(" ")[0] for c in by_code(run)} == {*CODES} - {UNTESTED}
    for place, (access, vantage, crafted) in enumerate(THREATS):
        leaking = case in LEAKS or case.endswith("over 0.5")
        if not leaking and (place + at) % 4:
            continue
        name = ("own", "own-level")[place % 2]
        report = build_report(vary(one, name, access, vantage, crafted))
        assert report.verdict_code == case.partition(" ")[0]
        on_card = card(report)
        texts = "\n".join([report.verdict, report.means, on_card])
        outside = vantage == "outsider" and not crafted
        assert outside or not (ASKS in texts or HOLDS in texts)
        assert access == "black_box" or ASKS not in texts
        assert not crafted or not any(
            f"{on} model of round" in texts for on in ("on the", "of the")
        )
        if case not in ("shift", "no-verdict"):
            assert name in report.verdict
        if leaking:
            auc = report.attacks[0].auc
            assert auc is not None
            assert report.verdict.startswith(f"The attack {name} separates")
            assert f"AUC {auc:.2f} " in report.verdict
            assert f"{name} picks the right one {100 * auc:.0f} times" in report.means
            assert (ASKS in report.means) == (outside and access == "black_box")
            assert (HOLDS in report.means) == (outside and access == "white_box")
            assert ("sends crafted updates" in report.means) == crafted
            assert ("models under attack of rounds 25-30" in report.verdict) == crafted
            assert ("send crafted updates" in on_card) == crafted
    table = tables(section(page(report, {}), "attacks"))[0]
    assert any(line[0].removesuffix(" *") == name for line in table) or case == "no-verdict"


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


def test_crafted__what_its_control_finds_as_well_is_not_named_beside_a_passive_leak(
    run: Evaluation,
) -> None:
    passive = attack(0.64, "lpla", 5, vantage="outsider", rounds=(5,))
    idle = build_report(crafted_run(run, 0.79, 0.79, passive))
    assert idle.verdict_code == "leaks" and "The attack lpla separates" in idle.verdict
    assert "ascent" not in idle.verdict + idle.means
    adds = build_report(crafted_run(run, 0.79, 0.6, passive))
    on_model, on_attacked = adds.verdict.split(" Under attack, ")
    assert "lpla" in on_model and "on the model of round 5)" in on_model
    assert "ascent-level" in on_attacked and "under attack of rounds 3-5" in on_attacked
    only = build_report(crafted_run(run, 0.79, 0.79))
    assert "The attack ascent-level separates" in only.verdict
    assert "The models under attack leak" in only.verdict
    assert "adds nothing measurable over the loss before the attack" in only.verdict
    assert "crafted updates add nothing" in only.means
    for report in (adds, only):
        terminal, page = shown(report)
        assert "ascent-level *" in terminal and "Other readings" not in terminal + page


def test_sets__who_can_ask_comes_from_the_attacks_threat(run: Evaluation) -> None:
    row = compared(0, 0.0005, 20, 50, 0.4)
    silent = replace(by_code(run)["not-established"], rounds=run.rounds)
    for access, vantage in itertools.product(ACCESS, VANTAGE):
        result = DatasetInferenceResults("own", "", [row], [0.7], access, vantage)
        report = build_report(replace(silent, inferences=[result]))
        (one,) = report.dataset_inference
        assert (one.access, one.vantage) == (access, vantage)
        who, _, rest = bare(report).partition(", and has a whole set")
        outside = access if vantage == "outsider" else None
        assert rest and ("can use this model" in who) == (outside == "black_box")
        assert ("has the weights of this model" in who) == (outside == "white_box")


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
    turned = attack(0.38, "dov4mm", 8)
    for case, one in by_code(run).items():
        both = build_report(replace(one, attacks=(*one.attacks, turned)))
        if case != "no-verdict":
            assert "; dov4mm is reversed (AUC under 0.5" in both.verdict
        assert "By dov4mm, members score lower" in both.means
    for text in shown(both):
        assert "dov4mm !" in text and "!: the AUC lies wholly under 0.5" in text
    assert "!" not in shown(build_report(one))[0]
