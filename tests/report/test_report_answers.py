"""The three boxes: plain, by the verdict's code, of the very model that the verdict names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedmia.records import EncoderInfo, Probe, RunScores, ScoredAttack
from fedmia.records.privacy import ClientDefence
from fedmia.report.build import build_report
from fedmia.report.notebook import DOUBT, LEAKS, html_study, html_summary
from fedmia.report.page import page
from fedmia.report.terminal import COLOURS

Scored = Callable[..., ScoredAttack]


def test_answers__a_leak_counts_members_and_names_one_model(run: RunScores, scored: Scored) -> None:
    attack = scored("active", 0.9, 112, 500, 1, under_attack=True, rounds=(25, 30))
    after = ({"knn": Probe(0.7, 300)}, 30)
    report = build_report(
        replace(run, attacks=[attack], controls={}, pairs=[], round=24, after_attack=after)
    )
    tpr = report["attacks"][0]["tpr_at_fpr"]["0.01"]
    assert f"at 1 false alarm in 100, {100 * tpr:.0f} are found" in report["sure"]
    assert "rounds 25-30; kNN accuracy of the model of round 30: 0.70" in report["sure"]
    assert "0.81" not in report["sure"]  # the use of round 24's
    assert "--defense dpsgd" in report["todo"] and "every client" in report["todo"]


@pytest.mark.parametrize(
    ("used", "first", "named", "silent"),
    [
        ((), "Affected", ["--defense early-stopping", "--defense dpsgd"], "did not stop it"),
        (("dpsgd",), "dpsgd did not", ["--defense.dpsgd.epsilon 8"], "--defense dpsgd`."),
        (("early-stopping",), "early-stopping did", ["--defense dpsgd"], "after 10"),
    ],
)
def test_answers__advise_no_defence_that_is_in_use(
    run: RunScores,
    scored: Scored,
    used: tuple[str, ...],
    first: str,
    named: list[str],
    silent: str,
) -> None:
    parts = tuple(ClientDefence(name) for name in used)
    clients = [
        replace(c, defence=replace(parts[0], parts=parts)) if parts else c for c in run.clients
    ]
    todo = build_report(
        replace(run, attacks=[scored("a", 0.9, 112, 500, 1)], clients=clients, pairs=[])
    )["todo"]
    assert first in todo and silent not in todo and all(name in todo for name in named)


def test_answers__a_defence_of_some_clients_did_not_fail(run: RunScores, scored: Scored) -> None:
    """The leak may be of those that do without: all are advised as if there were none."""
    some = replace(run.clients[0], defence=ClientDefence("dpsgd", parts=(ClientDefence("dpsgd"),)))
    attack = scored("a", 0.9, 112, 500, 1)
    mixed, none = (
        build_report(replace(run, attacks=[attack], clients=clients, pairs=[]))["todo"]
        for clients in ([some, *run.clients[1:]], run.clients)
    )
    assert sum(c.role == "honest" for c in run.clients) > 1 and mixed == none


def test_answers__no_leak_says_what_could_have_been_shown(run: RunScores, scored: Scored) -> None:
    attacks = [scored(f"{i}", 0.5, 112, 500, i) for i in range(9)]
    few, many = (
        build_report(replace(run, attacks=attacks[:k], controls={}, pairs=[])) for k in (1, 9)
    )
    least = [float(r["sure"].partition("has AUC ")[2][:4]) for r in (few, many)]
    assert 0.5 < least[0] < least[1] < 0.7
    assert "does not show that nothing leaks" in few["means"] and "more" in few["todo"]
    assert COLOURS.get("not-established") is None
    style = page(few, {}).partition("<style>")[2].partition("</style>")[0]
    assert "not-established" not in style


@pytest.mark.parametrize(("n", "m", "more"), [(900, 60, True), (60, 900, True), (900, 900, False)])
def test_answers__more_images_are_asked_for_where_either_side_is_small(
    make_run: Callable[..., RunScores], scored: Scored, n: int, m: int, more: bool
) -> None:
    none = [scored("a", 0.5, n, m, 1)]
    todo = build_report(replace(make_run(0.5, n, m), attacks=none, controls={}, pairs=[]))["todo"]
    assert ("To show a leak of AUC 0.55, score about" in todo) == more


def test_answers__an_audit_must_show_its_leak_over_the_control(
    run: RunScores, scored: Scored
) -> None:
    """In a run the members are drawn at random: 0.5 is enough."""
    audit = EncoderInfo("a file", 1, (), (), 8, (), (), (), "any")
    alone = replace(run, attacks=[scored("a", 0.5, 112, 500, 1)], pairs=[])
    own = {"untrained": [scored("a", 0.5, 112, 500, 9)]}
    least = [
        float(build_report(one)["sure"].partition("has AUC ")[2][:4])
        for one in (
            replace(alone, controls=own),
            replace(alone, controls=own, encoder=audit),
            replace(alone, controls={}, encoder=audit),
        )
    ]
    assert least[0] == least[2] < least[1]


@pytest.mark.parametrize("failure", [None, "a client failed"])
def test_verdict__a_run_without_a_round_has_none(run: RunScores, failure: str | None) -> None:
    report = build_report(replace(run, interrupted=0, failure=failure))
    assert report["verdict_code"] == "no-verdict"
    assert report["verdict"].startswith("No verdict: ") and "--resume" in report["todo"]
    assert build_report(replace(run, interrupted=1))["verdict_code"] == "leaks"


def test_page__boxes_then_contents_then_the_figure(run: RunScores) -> None:
    text = page(build_report(run), {"attacks": b"x"})
    places = [text.index(t) for t in ('class="boxes"', "<nav", "<figure", "<table")]
    assert places == sorted(places)
    names = text.partition("<nav")[2].partition("</nav>")[0].split('href="#')[1:]
    for name in (n.partition('"')[0] for n in names):
        assert f'<section id="{name}">' in text
    bare = [h for h in text.split("<th")[1:] if h.startswith(">") and not h.startswith("><small")]
    assert not [h[:60] for h in bare]


def test_notebook__escapes_and_shows_the_boxes(run: RunScores) -> None:
    evil = "<script>"
    report = build_report(replace(run, attacks=[replace(run.attacks[0], name=evil)], pairs=[]))
    text = html_summary(report)
    assert "<script" not in text and "&lt;script&gt;" in text and "What to do" in text
    study = html_study("<b>", [{"attack": i} for i in range(10)], ["<i>"])
    assert "&lt;b&gt;" in study and "and 2 more rows" in study and "&lt;i&gt;: 1" in study


def test_notebook__a_study_has_the_colour_and_the_words_of_its_verdicts() -> None:
    doubt = html_study("s", [], ["not-established"] * 2 + ["shift"])
    leak = html_study("s", [], ["not-established", "leaks"])
    assert DOUBT in doubt and LEAKS not in doubt and LEAKS in leak and DOUBT not in leak
    assert "not established: 2, shift: 1" in doubt and "leaks: 1" in leak
    assert "No run has a verdict yet." in html_study("s", [], [])


def test_notebook__a_run_has_the_colour_of_its_verdict(run: RunScores) -> None:
    leak, none = build_report(run), build_report(replace(run, attacks=[], pairs=[], controls={}))
    assert LEAKS in html_summary(leak) and DOUBT not in html_summary(leak)
    assert DOUBT in html_summary(none) and LEAKS not in html_summary(none)
    text = html_summary(leak)
    assert text.index("The model leaks") < text.index("<details") < text.index(leak["verdict"])
