"""A run in words: its verdict and the three boxes, by its code."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import (
    DatasetInferenceResults,
    Evaluation,
    Probe,
)
from fedmia.records.defence_rows import DefencePart, DefenceRow
from fedmia.records.privacy import Epsilon
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.codes import CODES
from fedmia.report.notebook import DOUBT, LEAKS, html_study, html_summary
from fedmia.report.words.attacks import count_pairs
from fedmia.report.words.card import NO_CONCLUSION, model_card
from fedmia.settings import registry
from tests.report.conftest import AUDIT, GONE, alone, compared, guessed, make_run, scored
from tests.snapshots import Snapshot

TECHNICAL = re.compile(
    r"simultaneous|holm|interval|\bnull\b|p-value is|permut|bonferroni|\d \[", re.I
)


def cases(run: Evaluation) -> list[tuple[str, Evaluation]]:
    """Verdict codes, and runs that have them."""

    def attack(auc: float, seed: int = 1, **more: object) -> Evaluation:
        return alone(run, scored("a", auc, 112, 500, seed, **more), pixels=None)

    half, high, low = attack(0.5), attack(0.8), attack(0.2)
    many = [scored(name, 0.5, 112, 500, seed) for name, seed in (("a", 1), ("b", 9))]
    placebo, same = ({"placebo": [scored("a", auc, 112, 500, 6)]} for auc in (0.5, 0.55))
    sent = attack(0.9, vantage="server", rounds=(24,))
    crafted = attack(0.9, under_attack=True, rounds=(25, 27, 30))
    after = ({"knn": Probe(0.7, 300)}, 30)
    untold = DatasetInferenceResults("dataset-inference", "", [compared(0, 0.0005, 20, 50)], [0.7])
    told = replace(untold, clients=[compared(0, 0.0005, 20, 50, 0.4)])
    probes = {"knn": Probe(0.5, 300), "linear": Probe(0.41, 300)}
    gone = {"health": GONE, "utility": probes}
    claim = Epsilon(
        value=1.0, delta=1e-5, rounds=20, standing="heuristic", assumptions="Per image.",
        lower_bound=guessed(1000, (50, 350, 700), (49, 315, 520)),
    )  # fmt: skip
    broken = DefenceRow(name="dpsgd", epsilon=claim)
    refuted = {"clients": [replace(run.clients[0], defence=broken), *run.clients[1:]]}
    none = np.zeros(0)
    empty = dict.fromkeys(("member_ids", "member_client", "member_labels"), none)
    shift, turned = (one.attacks[0].sides for one in (high, low))
    return [
        ("leaks", run),
        ("leaks", replace(crafted, controls=placebo, round=24, after_attack=after)),
        ("leaks", replace(sent, controls=placebo, pretrain="pooled", interrupted=30)),
        ("leaks", replace(high, controls=placebo, encoder=AUDIT, drawn=False, rounds=(), **gone)),
        ("leaks", replace(half, inferences=[told])),
        ("leaks", replace(half, **refuted)),
        ("leaks-uncontrolled", high),
        ("leaks-uncontrolled", replace(high, interrupted=7, failure="a client failed")),
        ("leaks-uncontrolled", replace(half, inferences=[untold])),
        ("not-established", half),
        ("not-established", alone(run, *many)),
        ("not-established", low),
        ("not-established", replace(attack(0.6, 3), controls=same)),
        ("untested", alone(run)),
        ("untested", alone(run, not_run={"a": "no model.", "b": "no model.", "c": "no time"})),
        (
            "untested",
            replace(half, attacks=[replace(half.attacks[0], scores_members=none)], **empty),
        ),
        ("collapsed", replace(half, **gone)),
        ("shift", replace(high, pixels=shift)),
        ("shift", replace(half, pixels=turned, **refuted)),
        ("control-failed", replace(high, controls={"untrained": high.attacks})),
        ("control-failed", replace(high, controls={"placebo": low.attacks})),
        ("no-verdict", replace(high, interrupted=0)),
        ("no-verdict", replace(high, interrupted=0, failure="a client failed")),
    ]


def test_words__of_each_code(run: Evaluation, snapshot: Snapshot) -> None:
    for code, one in cases(run):
        report = build_report(one)
        assert report.verdict_code == code
        assert report.verdict.endswith(".")
        assert "simultaneous" not in report.sure
        assert not TECHNICAL.search(report.means) and "AUC" not in report.means
        snapshot("\n".join((report.verdict, report.means, report.sure, report.todo)))


def test_model_card__claims_no_more_than_the_verdict(run: Evaluation, snapshot: Snapshot) -> None:
    shown = set[str]()
    for code, one in cases(run):
        report = build_report(one)
        card = model_card(report)
        concluded = code in ("leaks", "leaks-uncontrolled", "not-established")
        assert (NO_CONCLUSION in card) == (not concluded)
        for claim in ("false accusation", "accuses", "would have shown", "For a an attacker"):
            assert concluded or claim not in card
        assert ("Someone who" in card) == ("Someone who" in report.means)
        assert ("not find" in card) == ("not find" in report.means)
        if code not in shown:
            shown.add(code)
            snapshot("\n".join(card.split("\n\n")[: None if code == "leaks" else -2]))
    assert shown == {*CODES}


def test_model_card__says_what_an_attacker_needs_and_what_is_guaranteed(run: Evaluation) -> None:
    claim = Epsilon(
        value=8.0,
        delta=1e-5,
        rounds=20,
        standing="guaranteed",
        assumptions="Unit: one image.",
        unit="image",
    )
    bare = [replace(client, defence=None) for client in run.clients]
    told = [replace(bare[0], defence=DefenceRow(name="dpsgd", epsilon=claim)), *bare[1:]]
    seen = {"access": "white_box", "under_attack": True, "shadow_threshold": 0.5}
    one = scored("a", 0.9, 112, 500, 1, vantage="server", **seen)
    leaking = alone(
        run, one, not_run={"lira": "needs shadows"}, split={"known_members": 32}, pixels=None
    )
    with_claim, without = (
        model_card(build_report(replace(leaking, clients=clients))) for clients in (told, bare)
    )
    rate = build_report(leaking).attacks[0].tpr_at_fpr["0.01"]
    for words in (
        "must have the model's weights, and see the messages",
        ", and send crafted updates, and know 32 of", ", and train similar models",
        f"it names {100 * (rate or 0):.0f} of 100", "guessing: 1)",
        "112 training images (members) and 500 other images", "Not run: lira (needs shadows).",
    ):  # fmt: skip
        assert words in without
    assert "No formal guarantee is claimed." in without
    assert "client 0: dpsgd, epsilon 8 for one image" in with_claim
    assert "Unit: one image." in with_claim and "No formal guarantee" not in with_claim


@pytest.mark.parametrize("kind", ["run", "encoder", "vectors"])
def test_todo__a_control_that_each_kind_can_have(run: Evaluation, kind: str) -> None:
    own = {"encoder": {"encoder": AUDIT}, "vectors": {"config": {"member_embeddings": "A.npy"}}}
    high = alone(run, scored("a", 0.8, 112, 500, 1), pixels=None)
    report = build_report(replace(high, **own.get(kind, {})))
    assert report.verdict_code == "leaks-uncontrolled"
    advice = {"--federation.placebo true", "--defense early-stopping"}, {"never saw the members"}
    for audited, words in enumerate(advice):
        assert all((word in report.todo) == (audited == (kind != "run")) for word in words)


@pytest.mark.parametrize(("rounds", "third"), [(1, 1), (4, 1), (30, 10)])
def test_todo__stops_training_within_the_rounds_of_the_run(
    run: Evaluation, rounds: int, third: int
) -> None:
    leaking = alone(run, scored("a", 0.9, 112, 500, 1), rounds=run.rounds[:rounds])
    todo = build_report(leaking).todo
    assert f"early-stopping.after {third}`" in todo and "fedmia study RUN/config.yaml" in todo


def test_todo__advises_more_attacks_where_there_are_more(run: Evaluation) -> None:
    every = registry.names("attack")
    for asked in (every, every[1:], ["similarity"]):
        silent = alone(run, scored("a", 0.5, 112, 500, 1), config={"attacks": asked})
        todo = build_report(silent).todo
        assert ("--attacks all" in todo) == (asked is not every) and "other seeds" in todo


def test_count_pairs__is_the_share_of_pairs_that_the_attack_orders_right(run: Evaluation) -> None:
    attack = scored("similarity", 0.8, 112, 500, 1)
    share = np.mean(attack.scores_members[:, None] > attack.scores_nonmembers[None, :])
    means = build_report(alone(run, attack)).means
    assert f"the right one {100 * share:.0f} times of 100;" in means
    counts = [count_pairs("a", auc).split("right one ")[1] for auc in (0.503, 0.996, 0.6)]
    wanted = ["503 times of 1,000", "996 times of 1,000", "60 times of 100"]
    assert [count.split(";")[0] for count in counts] == wanted


@pytest.mark.parametrize(
    ("used", "advised", "silent"),
    [
        ((), ["--defense early-stopping", "--defense dpsgd`"], "did not"),
        (("dpsgd",), ["dpsgd did not", "--defense.dpsgd.epsilon 8"], "--defense dpsgd`."),
        (("early-stopping",), ["early-stopping did not", "--defense dpsgd`"], "stopping.after"),
    ],
)
def test_todo__advises_no_defence_that_all_use(
    run: Evaluation, used: tuple[str, ...], advised: list[str], silent: str
) -> None:
    parts = [DefencePart(name=name) for name in used]
    defence = DefenceRow(name=used[0], parts=parts) if parts else None
    leaking = alone(run, scored("a", 0.9, 112, 500, 1), controls=run.controls)
    everyone = [replace(c, defence=defence) for c in run.clients]
    todo, mixed, none = (
        build_report(replace(leaking, clients=clients)).todo
        for clients in (everyone, [everyone[0], *run.clients[1:]], run.clients)
    )
    assert all(name in todo for name in advised) and silent not in todo
    assert mixed == none  # the leak may be of those that do without


def least(report: Report) -> float:
    """The smallest AUC that the images would have shown."""
    return float(report.sure.partition("has AUC ")[2][:4])


def test_sure__no_leak_says_what_could_have_been_shown(run: Evaluation) -> None:
    attacks = [scored(f"{i}", 0.5, 112, 500, i) for i in range(9)]
    few, many = (least(build_report(alone(run, *attacks[:k]))) for k in (1, 9))
    assert 0.5 < few < many < 0.7


def test_sure__a_leak_must_show_over_the_control(run: Evaluation) -> None:
    """In a run the members are drawn at random: there the control costs the level of one attack."""
    attacks, untrained = (
        [scored(name, 0.5, 112, 500, seed + i) for i, name in enumerate("abcdefghi")]
        for seed in (1, 20)
    )
    own = {"untrained": untrained}
    ends = [
        least(build_report(alone(run, *attacks, controls=controls, drawn=drawn)))
        for controls, drawn in (({}, False), (own, True), (own, False))
    ]
    assert ends[0] < ends[1] < ends[2]


@pytest.mark.parametrize(("n", "m", "more"), [(900, 60, True), (60, 900, True), (900, 900, False)])
def test_todo__more_images_are_asked_for_where_either_side_is_small(
    n: int, m: int, more: bool
) -> None:
    todo = build_report(alone(make_run(0.5, n, m), scored("a", 0.5, n, m, 1))).todo
    assert ("AUC 0.55" in todo) == more


def test_notebook__boxes_in_the_colour_of_the_verdict(run: Evaluation, report: Report) -> None:
    leak, none = html_summary(report), html_summary(build_report(alone(run)))
    assert LEAKS in leak and DOUBT not in leak and DOUBT in none and LEAKS not in none
    places = [leak.index(text) for text in (report.verdict, str(report.means), "<table")]
    assert places == sorted(places) and str(report.todo).partition("`")[0] in leak
    evil = html_summary(build_report(alone(run, replace(run.attacks[0], name="<script>"))))
    assert "<script" not in evil and "&lt;script&gt;" in evil


def test_notebook__a_study_has_the_colour_and_the_words_of_its_verdicts() -> None:
    doubt = html_study("s", [], ["not-established"] * 2 + ["shift"])
    leak = html_study("<b>", [{"attack": i} for i in range(10)], ["<i>", "leaks"])
    assert DOUBT in doubt and LEAKS not in doubt and LEAKS in leak and DOUBT not in leak
    assert "not established: 2, shift: 1" in doubt and "No run has" in html_study("s", [], [])
    assert "&lt;b&gt;" in leak and "and 2 more rows" in leak and "&lt;i&gt;: 1" in leak
