"""From planted reports to the rows, the front, the choice and the page of a trade-off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import t as student

from fedmia.cli.command import parse
from fedmia.cli.commands import TRADEOFF
from fedmia.config.tradeoff import Tradeoff
from fedmia.study.engine import Study
from fedmia.study.views._choice import COSTS, choose, sentence
from fedmia.study.views._trades import points, spent
from fedmia.study.views.sweep import SweepView
from fedmia.study.views.tradeoff import TradeoffView, draw, lost
from fedmia.study.views.tradeoff import epsilon as spent_at
from tests.report.conftest import Page
from tests.snapshots import Snapshot

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "active.json"
SEEDS = 5
WAVE = (-0.02, 0.01, 0.0, -0.01, 0.02)  # of the seeds: mean 0, deviation sqrt(0.001 / 4)
# AUC of `similarity` and of `internal`, and kNN, in the mean, of each point.
PLANTED = {
    "no defence": (0.70, 0.65, 0.80),
    "gaussian scale=0.01": (0.69, 0.66, 0.80),
    "gaussian scale=0.1": (0.56, 0.60, 0.77),
    "gaussian scale=1.0": (0.50, 0.51, 0.50),
    "dpsgd noise_multiplier=1.0": (0.595, 0.55, 0.785),
    "dpsgd noise_multiplier=9.0": (0.50, 0.50, 0.49),
}
LEAST = "dpsgd noise_multiplier=1.0"
FLAGS = (
    "--defenses gaussian,dpsgd --strengths gaussian=0.01,0.1,1;dpsgd=1,9 --attacker passive "
    f"--attacks similarity,internal --seeds {SEEDS}"
)


def planted(trade: str, seed: int) -> dict[str, Any]:
    """A report in which the attacks' AUCs follow the wave, one of them reversed at dpsgd."""
    report: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    similarity, internal, knn = PLANTED[trade]
    moved = WAVE[-1 - seed] if trade.startswith("dpsgd") else WAVE[seed]
    rows = {row["name"]: row for row in report["attacks"]}
    report["attacks"] = [
        rows["similarity"] | {"auc": round(similarity + moved, 6)},
        rows["internal"] | {"auc": round(internal + moved, 6)},
    ]
    report["not_run"] = [
        {"attack": "lira", "reason": "failed: <NaN>" if seed else "no <shadows>"},
    ]  # fmt: skip
    report["utility"] |= {"knn": round(knn + moved / 10, 6), "linear": 0.3}
    report["utility"]["untrained"]["knn"] = round(0.6 - WAVE[seed] / 10, 6)
    report["defended"] = None
    if trade == LEAST:
        report["defended"] = {"groups": [
            {"group": group, "leakage": [{"attack": "similarity", "auc": 0.5 + up + seed / 100},
                                         {"attack": "internal", "auc": 0.9}]}
            for group, up in (("defended", 0.0), ("undefended", 0.1 + seed / 100))
        ]}  # fmt: skip
    for client in report["clients"]:
        client["defence"] = None
    if trade != "no defence":
        spent = {"value": 8.0 + seed, "delta": 0.0, "rounds": 2, "standing": "guaranteed"}
        spent |= {"assumptions": "", "unit": "client"}
        more = {"name": "one", "epsilon": spent, "metrics": {}}
        report["clients"][0]["defence"] = more
    report["sets"] = []
    return report | {"versions": {"commit": None}, "timing": {"total_s": 1.5}}


def made(
    broken: tuple[str, int] | None = None, change: Callable[[Any], None] = lambda report: None
) -> Any:
    """The trade-off of the planted runs as `change` leaves them, of which one may have failed."""
    tradeoff: Tradeoff = parse(TRADEOFF, FLAGS.split()).settings
    sweep, finished, failed = tradeoff.sweep, dict[str, Any](), dict[str, str]()
    for i, cell in enumerate(sweep.cells):
        label = tradeoff.trades[i % len(tradeoff.trades)].label
        if (label, cell.seed) == broken:
            failed[cell.key] = "round 1: <NaN>"
        else:
            report = planted(label, cell.seed)
            change(report)
            finished[cell.key] = f"cells/{cell.key}", report
    return TradeoffView().report(Study(tradeoff, sweep.cells, finished, failed, 2.0))


@pytest.fixture(scope="module")
def whole() -> Any:
    return made()


def at(report: Any, label: str) -> Any:
    return next(point for point in report["points"] if point["label"] == label)


def test_rows__one_an_attack_and_run(whole: Any) -> None:
    assert [p["label"] for p in whole["points"]] == list(PLANTED)
    assert len(whole["rows"]) == len(PLANTED) * SEEDS * 3
    row = next(r for r in whole["rows"] if (r["defense"], r["strength"]) == ("gaussian", 0.1))
    assert (row["attack"], row["auc"], row["seed"]) == ("similarity", 0.54, 0)
    assert (row["epsilon"], row["standing"], row["seconds"]) == (8.0, "guaranteed", 1.5)
    assert row["unit"] == at(whole, "gaussian scale=0.1")["unit"] == "client"
    assert row["knn"] == 0.768 and row["note"] is None and row["knn_untrained"] == 0.602
    bare = whole["rows"][0]
    assert (bare["defense"], bare["strength"], bare["epsilon"]) == ("none", None, None)
    absent = whole["rows"][2]
    assert (absent["attack"], absent["auc"], absent["note"]) == (
        "lira", None, "not run: no <shadows>",
    )  # fmt: skip
    assert whole["rows"][5]["note"] == "failed: <NaN>"
    assert at(whole, "gaussian scale=0.1")["epsilon"] == 12.0  # the largest of a seed


def test_use__is_that_of_the_model_that_the_attack_reads() -> None:
    """The passive attacks' before the attacked rounds, after them that of the active one, which
    leaks most and costs half of the kNN."""

    def attacked(report: Any) -> None:
        report["attacks"][1] = {**report["attacks"][1], "name": "ascent", "auc": 0.9,
                                "under_attack": True}  # fmt: skip
        report["utility"]["after_attack"] = {"knn": 0.4, "linear": 0.5}

    report = made(change=attacked)
    first = {row["attack"]: (row["knn"], row["linear"]) for row in report["rows"][:3]}
    assert first["similarity"][0] == first["lira"][0] == 0.798 and first["ascent"] == (0.4, 0.5)
    for point in report["points"]:  # leak and use in one picture
        assert (point["best"], point["knn"]["mean"]) == ("ascent", 0.4)
        assert point["knn_change"] is None or point["knn_change"]["mean"] == 0
    assert report["choice"]["candidates"] == list(PLANTED)  # none loses what the attack costs all


def test_epsilon__of_the_server_where_no_client_defends_itself() -> None:
    report: Any = planted("no defence", 0)
    assert spent(report) is None
    promise = {"value": 3.0, "delta": 1e-5, "rounds": 2, "standing": "guaranteed"}
    report["aggregation"] = {"name": "one", "epsilon": promise}
    assert spent(report) == promise
    report["clients"][1]["defence"] = {"name": "two", "epsilon": None}
    assert spent(report) is None


def test_epsilon__is_of_all_defended_clients_or_of_none() -> None:
    """One of them that promises nothing is not passed over; units and deltas are never mixed."""
    report: Any = planted("gaussian scale=0.1", 0)
    first = report["clients"][0]["defence"]
    larger = first["epsilon"] | {"value": 9.5}
    report["clients"][1]["defence"] = first | {"epsilon": larger}
    assert spent(report) == larger
    for other in (None, larger | {"unit": "image"}, larger | {"delta": 1e-5}):
        report["clients"][2]["defence"] = first | {"epsilon": other}
        assert spent(report) is None


def test_best__and_one_correction_over_all_that_was_tried(whole: Any) -> None:
    assert [p["best"] for p in whole["points"]] == [
        "similarity", "similarity", "internal", "internal", "similarity", "similarity",
    ]  # fmt: skip
    assert whole["family"]["intervals"] == 12
    error = np.sqrt(0.001 / 4 / 5)
    for point in whole["points"]:
        for row in point["attacks"][:2]:
            mean, ci = row["auc"]["mean"], row["auc_ci_simultaneous"]
            half = student.ppf(1 - 0.025 / 12, 4) * error
            assert ci == pytest.approx((mean - half, mean + half), abs=1e-6)
            assert row["auc"]["ci"] == pytest.approx(
                (mean - 2.776445 * error, mean + 2.776445 * error), abs=1e-6
            )
        assert point["attacks"][2]["auc"]["n"] == 0


def test_change__from_the_undefended_of_the_same_seed(whole: Any) -> None:
    """The wave of gaussian is that of the undefended, so the difference is the same everywhere;
    dpsgd's is reversed."""
    same, other = at(whole, "gaussian scale=0.1"), at(whole, "dpsgd noise_multiplier=1.0")
    assert same["auc_change"] == {
        "n": 5, "mean": -0.1, "ci": None, "sd": 0.0, "least": -0.1, "greatest": -0.1,
    }  # fmt: skip
    assert other["auc_change"]["mean"] == pytest.approx(-0.105)  # type: ignore[index]
    assert other["auc_change"]["sd"] == pytest.approx(2 * np.sqrt(0.001 / 4), abs=1e-6)  # type: ignore[index]
    assert whole["points"][0]["auc_change"] is None


def test_use_over_untrained__of_the_same_seed(whole: Any) -> None:
    """The untrained encoder's wave is that of the trained one reversed, so the difference has
    twice its spread; that of the undefended federation is told, too."""
    for label, wave in (("no defence", 2), ("gaussian scale=0.1", 2)):
        over, knn = at(whole, label)["knn_over_untrained"], PLANTED[label][2]
        assert over["mean"] == pytest.approx(knn - 0.6)
        assert over["sd"] == pytest.approx(wave * np.sqrt(0.001 / 4) / 10, abs=1e-6)


def test_groups__of_models_in_which_some_defend_themselves(whole: Any) -> None:
    groups = at(whole, LEAST)["groups"]
    assert groups is not None and groups["defended"]["mean"] == pytest.approx(0.52)
    assert groups["undefended"]["mean"] == pytest.approx(0.64)
    assert groups["difference"]["mean"] == pytest.approx(-0.12)
    assert groups["difference"]["sd"] == pytest.approx(np.sqrt(0.00025), abs=1e-6)
    assert sum(p["groups"] is not None for p in whole["points"]) == 1


def test_front__is_what_a_naive_search_finds(whole: Any) -> None:
    places = {label: (max(a, b), knn) for label, (a, b, knn) in PLANTED.items()}
    naive = {
        label for label, (auc, knn) in places.items()
        if not any(a <= auc and k >= knn and (a, k) != (auc, knn) for a, k in places.values())
    }  # fmt: skip
    assert {p["label"] for p in whole["points"] if p["front"]} == naive
    assert naive == {
        "gaussian scale=0.01", "dpsgd noise_multiplier=1.0", "gaussian scale=1.0",
        "dpsgd noise_multiplier=9.0",
    }  # fmt: skip


def test_choice__the_least_leaking_and_what_cannot_be_told_apart(whole: Any) -> None:
    """0.95 of 0.80 is 0.76: the strong ones are out. dpsgd leaks least; gaussian 0.1 is 0.005 off,
    the others 0.095 and more with an error of 0.0141, so that t is 6.7 and 7.4, where one side of
    0.05 / 3 asks 3.2 of four degrees of freedom."""
    choice = whole["choice"]
    assert choice["candidates"] == [
        "no defence", "gaussian scale=0.01", "gaussian scale=0.1", "dpsgd noise_multiplier=1.0",
    ]  # fmt: skip
    assert choice["least"] == "dpsgd noise_multiplier=1.0"
    assert choice["alike"] == ["gaussian scale=0.1"]


@pytest.mark.parametrize(("others", "alike"), [(0, []), (2, ["none"])])
def test_choice__each_candidate_makes_the_others_harder_to_tell(
    others: int, alike: list[str]
) -> None:
    """t is 2.6 with four degrees of freedom: one side of 0.05 asks 2.13, of 0.05 / 3 asks 3.19."""
    error = np.sqrt(0.001 / 4 / 5)
    aucs = [[0.5 + 2.6 * error + moved for moved in WAVE], [0.5] * SEEDS]
    aucs += [[0.9 + moved for moved in WAVE]] * others
    rows: Any = [
        [{"seed": s, "auc": auc, "attack": "a", "knn": 0.8} for s, auc in enumerate(one)]
        for one in aucs
    ]
    names = ["none", "least", "one", "two"][: len(aucs)]
    choice = choose([{"label": name, "best": "a", "failed": 0} for name in names], rows)  # type: ignore[typeddict-item]
    assert (choice["least"], choice["alike"]) == ("least", alike)


def test_choice__holds_the_least_leaking_one_in_at_least_95_percent() -> None:
    """Four equal points and one that leaks more, each of five models: the truly least leaking ones
    are alike, and each of them is named, or chosen, in all but 5 % of the draws."""
    rng, lost_one, told = np.random.default_rng(0), 0, 0
    tradeoff: Tradeoff = parse(TRADEOFF, FLAGS.split()).settings
    for _ in range(60):
        aucs = rng.normal(0.6, 0.02, (6, SEEDS))
        aucs[0] += 0.2
        rows = [
            [{"seed": s, "auc": auc, "attack": "a", "knn": 0.8} for s, auc in enumerate(one)]
            for one in aucs
        ]
        results: Any = [{"label": t.label, "best": "a", "failed": 0} for t in tradeoff.trades]
        choice = choose(results, rows)  # type: ignore[arg-type]
        lost_one += results[3]["label"] not in {choice["least"], *choice["alike"]}
        told += "no defence" not in choice["alike"]
    assert lost_one <= 5 and told >= 54


def test_failed_run__is_rows_with_nulls_and_its_point_no_candidate() -> None:
    report = made(broken=("dpsgd noise_multiplier=1.0", 3))
    gone = [r for r in report["rows"] if r["note"] == "failed: round 1: <NaN>"]
    assert [(r["attack"], r["auc"], r["knn"], r["seed"]) for r in gone] == [
        ("similarity", None, None, 3), ("internal", None, None, 3),
    ]  # fmt: skip
    point = at(report, "dpsgd noise_multiplier=1.0")
    assert (point["finished"], point["failed"]) == (4, 1)
    assert report["choice"]["least"] == "gaussian scale=0.1"
    assert ("dpsgd noise_multiplier=1.0 (similarity, internal; seed 3)",
            "failed: round 1: <NaN>") in list(lost(report))  # fmt: skip
    text = TradeoffView().page(report, {})
    assert "round 1: &lt;NaN&gt;" in text and "<NaN>" not in text


CHANGED: list[dict[str, tuple[float, float, float]]] = [
    {"no defence": (0.50, 0.50, 0.80)},
    {"no defence": (0.70, 0.65, 0.90)},
    {LEAST: (0.5, 0.5, 0.761)},
    {LEAST: (0.68, 0.6, 0.79), "gaussian scale=0.1": (0.7, 0.7, 0.5)},
    {LEAST: (0.4, 0.4, 0.79)},
    {LEAST: (0.75, 0.6, 0.79), "gaussian scale=0.1": (0.75, 0.7, 0.8),
     "gaussian scale=0.01": (0.75, 0.7, 0.8)},
]  # fmt: skip


@pytest.mark.parametrize("changed", CHANGED)
def test_sentence__says_what_the_models_tell(
    changed: dict[str, tuple[float, float, float]], monkeypatch: pytest.MonkeyPatch,
    snapshot: Snapshot,
) -> None:  # fmt: skip
    for label, numbers in changed.items():
        monkeypatch.setitem(PLANTED, label, numbers)
    snapshot(made()["sentence"])


def test_sentence__names_all_that_it_cannot_be_told_from(whole: Any, snapshot: Snapshot) -> None:
    bare, least = whole["points"][0], at(whole, LEAST)
    for alike, models in (([], 1), (["no defence"], 2), (["x", "y", "z"], 3)):
        few: Any = {**least, "knn": {**least["knn"], "n": models}}
        snapshot(sentence([bare, few], {**whole["choice"], "alike": alike}).partition("]. ")[2])


@pytest.mark.parametrize(
    ("epsilon", "standing", "told"),
    [(19.0, "heuristic", "19 for one client, heuristic"),
     (21.0, "guaranteed", "21 for one client, no meaningful guarantee"),
     (None, "guaranteed", "none for one client, no meaningful guarantee"), (None, None, "–")],
)  # fmt: skip
def test_epsilon__over_twenty_promises_nothing(
    whole: Any, epsilon: float | None, standing: str | None, told: str
) -> None:
    least: Any = {**at(whole, LEAST), "epsilon": epsilon, "standing": standing}
    assert spent_at(least) == told
    text = sentence([whole["points"][0], least], whole["choice"])
    assert ("Its epsilon is no" in text) == ("meaningful" in told)


def test_undefended__without_a_result_nothing_is_compared() -> None:
    tradeoff: Tradeoff = parse(TRADEOFF, FLAGS.split()).settings
    study = Study(tradeoff, tradeoff.sweep.cells, seconds=1.0)
    none = SweepView(tradeoff.sweep).report(study)
    report = TradeoffView().report(study)
    assert report["sentence"].startswith("The undefended federation has no result")
    assert COSTS not in TradeoffView().page(report, {}) + str(
        TradeoffView().terminal(report).caption
    )
    assert draw(report) is None and not any(p["front"] for p in report["points"])
    assert {r["note"] for r in report["rows"]} == {"not run"}
    assert points(tradeoff.trades, none["points"], [[]] * 6)[0]["best"] is None
    assert sentence(report["points"], report["choice"]) == report["sentence"]


def terminal(report: Any) -> list[str]:
    console = Console(width=80)
    with console.capture() as screen:
        console.print(TradeoffView().terminal(report))
    return screen.get().splitlines()


def test_shown__in_terminal_and_page(whole: Any, snapshot: Snapshot) -> None:
    """No word is broken on 80 columns."""
    long = [{**p, "defense": "early-stopping"} for p in whole["points"]]
    lines = terminal({**whole, "points": long})
    assert sum(line.startswith("early-stopping") for line in lines) == len(PLANTED) - 1
    assert max(map(len, [*lines, *terminal(whole)])) <= 80
    snapshot("\n".join(terminal(whole)))
    document = Page(TradeoffView().page(whole, {"tradeoff": b"picture"}))
    assert len(document.loads) == 2 and document.loads[1] == "sweep.html"
    snapshot(document.text())
    assert str(draw(whole))[2:].startswith("\\x89PNG")
