"""A run in words: its verdict and the three boxes, by its code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.codes import CODES
from fedmia.settings import registry
from tests.made_up_runs import made_up_row
from tests.report.conftest import (
    AUDIT,
    TECHNICAL,
    Case,
    alone,
    card,
    claim,
    defence,
    make_run,
    notebook,
    placed,
    scored,
)
from tests.snapshots import Snapshot


def test_words__of_each_code(of_codes: list[Case], snapshot: Snapshot) -> None:
    for code, _, report in of_codes:
        assert report.verdict_code == code
        assert report.verdict.endswith(".")
        assert "simultaneous" not in report.sure
        assert not TECHNICAL.search(report.means) and "AUC" not in report.means
        snapshot("\n".join((report.verdict, report.means, report.sure, report.todo)))


def test_model_card__claims_no_more_than_the_verdict(
    of_codes: list[Case], snapshot: Snapshot
) -> None:
    shown = set[str]()
    for code, _, report in of_codes:
        text = card(report)
        concluded = code in ("leaks", "leaks-uncontrolled", "not-established")
        assert ("The test allows no conclusion" in text) == (not concluded)
        for words in ("false accusation", "accuses", "would have shown", "For a an attacker"):
            assert concluded or words not in text
        assert ("Someone who" in text) == ("Someone who" in report.means)
        assert ("not find" in text) == ("not find" in report.means)
        if code not in shown:
            shown.add(code)
            snapshot("\n".join(text.split("\n\n")[: None if code == "leaks" else -2]))
    assert shown == {*CODES}


def test_model_card__says_what_an_attacker_needs_and_what_is_guaranteed(run: Evaluation) -> None:
    unit = {"standing": "guaranteed", "unit": "image", "assumptions": "Unit: one image."}
    bare = [replace(client, defence=None) for client in run.clients]
    told = [replace(bare[0], defence=defence(epsilon=claim(8.0, **unit))), *bare[1:]]
    seen = {"access": "white_box", "under_attack": True, "shadow_threshold": 0.5}
    one = scored("a", 0.9, 112, 500, 1, vantage="server", **seen)
    leaking = alone(
        run, one, not_run={"lira": "needs shadows"}, split={"known_members": 32}, pixels=None
    )
    with_claim, without = (
        card(build_report(replace(leaking, clients=clients))) for clients in (told, bare)
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


def test_pairs__are_counted_as_the_attack_orders_them(run: Evaluation) -> None:
    attack = scored("similarity", 0.8, 112, 500, 1)
    share = np.mean(attack.scores_members[:, None] > attack.scores_nonmembers[None, :])
    means = build_report(alone(run, attack)).means
    assert f"the right one {100 * share:.0f} times of 100;" in means
    means = build_report(alone(run, placed("similarity", 0.996))).means
    assert "the right one 996 times of 1,000;" in means


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
    parts = [made_up_row("clients.defence.parts", name=name) for name in used]
    own = defence(used[0], parts=parts) if parts else None
    leaking = alone(run, scored("a", 0.9, 112, 500, 1), controls=run.controls)
    everyone = [replace(c, defence=own) for c in run.clients]
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
    red, amber = "#c9483f", "#b07d12"
    leak, none = notebook(report), notebook(build_report(alone(run)))
    assert red in leak and amber not in leak and amber in none and red not in none
    places = [leak.index(text) for text in (report.verdict, str(report.means), "<table")]
    assert places == sorted(places) and str(report.todo).partition("`")[0] in leak
    evil = notebook(build_report(alone(run, replace(run.attacks[0], name="<script>"))))
    assert "<script" not in evil and "&lt;script&gt;" in evil
