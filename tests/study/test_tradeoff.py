"""From planted reports to the points, the front, the choice and the page of a trade-off."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from fedmia.cli.command import parse
from fedmia.cli.commands import STUDY
from fedmia.records.rows import Report
from fedmia.settings.commands.study import Study
from fedmia.settings.errors import InputError
from fedmia.storage.json_rows import from_json
from fedmia.study.cells import spent
from fedmia.study.command import show, write
from fedmia.study.points import change, largest_epsilon
from fedmia.study.result import StudyResult
from fedmia.study.rows import DefencePointRow, OverModels
from fedmia.study.views._choice import choose
from fedmia.study.views.tradeoff import (
    TradeoffView,
    beats,
    draw,
    groups,
    point_rows,
)
from fedmia.study.words import COSTS, defences_sentence, guarantee
from tests.report.conftest import Page
from tests.snapshots import Snapshot
from tests.study.planted import golden, study_of, study_of_rows
from tests.study.test_views import row

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


def planted(point: str, seed: int) -> dict[str, Any]:
    """A report in which the attacks' AUCs follow the wave, one of them reversed at dpsgd."""
    report = golden()
    similarity, internal, knn = PLANTED[point]
    moved = WAVE[-1 - seed] if point.startswith("dpsgd") else WAVE[seed]
    rows = {row["name"]: row for row in report["attacks"]}
    report["attacks"] = [
        rows["similarity"] | {"auc": round(similarity + moved, 6)},
        rows["internal"] | {"auc": round(internal + moved, 6)},
    ]
    report["not_run"] = {"lira": "failed: <NaN>" if seed else "no <shadows>"}
    report["utility"] |= {"knn": round(knn + moved / 10, 6), "linear": 0.3}
    report["utility_untrained"]["knn"] = round(0.6 - WAVE[seed] / 10, 6)
    sides, report["defended"] = report["defended"], []
    if point == LEAST:
        ups = (0.0, 0.1 + seed / 100)
        for side, up in zip(sides, ups, strict=True):
            one, *_ = side["leakage"]
            found = [one | {"attack": "similarity", "auc": 0.5 + up + seed / 100},
                     one | {"attack": "internal", "auc": 0.9}]  # fmt: skip
            report["defended"].append(side | {"leakage": found})
    defence = next(client["defence"] for client in report["clients"] if client["defence"])
    for client in report["clients"]:
        client["defence"] = None
    report["aggregation"] = None
    if point != "no defence":
        promise = {"value": 8.0 + seed, "delta": 0.0, "rounds": 2, "standing": "guaranteed"}
        promise = defence["epsilon"] | promise | {"assumptions": "", "unit": "client"}
        more = {"name": "one", "epsilon": promise, "metrics": {}, "parts": [], "beside": []}
        report["clients"][0]["defence"] = defence | more
    return report | {"sets": []}


def made(
    broken: tuple[str, int] | None = None, edit: Callable[[Any], None] = lambda report: None,
    folder: Path = Path("STUDY"), seeds: int = SEEDS,
) -> StudyResult:  # fmt: skip
    """The trade-off of the planted runs as `edit` leaves them, of which one may have failed."""
    settings: Study = parse(STUDY, FLAGS.split()).settings
    runs: list[Any] = []
    for cell in settings.points:
        for seed in range(seeds):
            report: Any = planted(cell.point, seed)
            edit(report)
            failed = (cell.point, seed) == broken
            runs.append((cell.point, cell.grid, seed, "round 1: <NaN>" if failed else report))
    return study_of(runs, ("tradeoff",), folder, **settings.tree())


@pytest.fixture(scope="module")
def whole() -> list[DefencePointRow]:
    return point_rows(made())


def at(points: list[DefencePointRow], name: str) -> DefencePointRow:
    return next(point for point in points if point.point == name)


def answer(points: list[DefencePointRow]) -> tuple[list[str], str | None, list[str], list[str]]:
    """Candidates, the least leaking one, those like it, and the chosen ones."""
    chosen = choose(points)
    least = next((p.point for p in chosen if p.choice == "least"), None)
    alike = [p.point for p in chosen if p.choice == "alike"]
    bold = [p.point for p in chosen if p.chosen]
    return [p.point for p in chosen if p.candidate], least, alike, bold


def test_points__one_a_defence_and_strength(whole: list[Any]) -> None:
    assert [point.point for point in whole] == list(PLANTED)
    named = [(p.defense, p.strength) for p in whole]
    assert named == [
        ("none", None), ("gaussian", 0.01), ("gaussian", 0.1), ("gaussian", 1.0), ("dpsgd", 1.0),
        ("dpsgd", 9.0),
    ]  # fmt: skip
    gaussian = at(whole, "gaussian scale=0.1")
    assert gaussian.attacks["similarity"].by_seed[0] == 0.54
    assert gaussian.knn_by_seed[0] == 0.768
    # The largest of a seed.
    assert (gaussian.epsilon, gaussian.standing, gaussian.unit) == (12.0, "guaranteed", "client")
    assert whole[0].epsilon is whole[0].standing is None


def test_use__is_that_of_the_model_that_the_attack_reads() -> None:
    """The passive attacks' before the attacked rounds, after them that of the active one, which
    leaks most and costs half of the kNN."""

    def attacked(report: Any) -> None:
        report["attacks"][1] = {**report["attacks"][1], "name": "ascent", "auc": 0.9,
                                "under_attack": True}  # fmt: skip
        after = {**report["utility_untrained"], "knn": 0.4, "linear": 0.5}
        report["utility_after_attack"] = after

    points = point_rows(made(edit=attacked))
    for point in points:  # leak and use in one picture
        assert point.best == "ascent"
        assert (point.knn.mean, point.linear.mean) == (0.4, 0.5)
        assert point.knn_change is None or point.knn_change.mean == 0
    assert answer(points)[0] == list(PLANTED)  # none loses what the attack costs all


def test_epsilon__of_all_defended_clients_else_of_the_server() -> None:
    report: Any = planted("no defence", 0)
    assert spent(from_json(Report, report, "report")) is None
    kept: Any = planted(LEAST, 0)["clients"][0]["defence"]
    promise = kept["epsilon"] | {"value": 3.0, "delta": 1e-5, "standing": "guaranteed"}
    server = {"name": "one", "epsilon": promise, "metrics": {}, "view": "updates"}
    report["aggregation"] = server
    assert spent(from_json(Report, report, "report")) == promise
    for client, larger in enumerate((8.0, 9.5)):
        own = kept | {"name": "two", "epsilon": promise | {"value": larger}}
        report["clients"][client]["defence"] = own
        assert spent(from_json(Report, report, "report")) == own["epsilon"]
    report["clients"].append(report["clients"][0] | {"defence": kept | {"epsilon": None}})
    assert spent(from_json(Report, report, "report")) is None


def stated(epsilon: float | None, standing: str) -> dict[str, Any]:
    return {"value": epsilon, "standing": standing, "unit": "image"}


@pytest.mark.parametrize(
    ("promises", "largest"),
    [
        ([stated(3.0, "guaranteed"), stated(5.0, "heuristic")], 1),
        # No finite one is the largest.
        ([stated(3.0, "guaranteed"), stated(None, "heuristic")], 1),
        ([stated(None, "heuristic"), stated(9.0, "guaranteed")], 0),
        # One that promises nothing is not passed over; units and deltas are never mixed.
        ([stated(3.0, "guaranteed"), None], None), ([], None),
        ([stated(3.0, "guaranteed"), stated(5.0, "guaranteed") | {"unit": "client"}], None),
        ([stated(3.0, "guaranteed"), stated(5.0, "guaranteed") | {"delta": 1e-5}], None),
    ],
)  # fmt: skip
def test_largest_epsilon__of_all_models_or_none(promises: Any, largest: int | None) -> None:
    assert largest_epsilon(promises) == (None if largest is None else promises[largest])


def test_best__and_one_correction_over_all_that_was_tried(whole: list[Any]) -> None:
    assert [point.best for point in whole] == [
        "similarity", "similarity", "internal", "internal", "similarity", "similarity",
    ]  # fmt: skip
    error = np.sqrt(0.001 / 4 / 5)
    for point in whole:
        assert list(point.attacks) == ["similarity", "internal"]
        for own in point.attacks.values():
            mean, ci = own.auc.mean or 0.0, own.auc.ci_simultaneous
            half = student.ppf(1 - 0.025 / 12, 4) * error
            assert ci == pytest.approx((mean - half, mean + half), abs=1e-6)
            assert own.auc.ci == pytest.approx(
                (mean - 2.776445 * error, mean + 2.776445 * error), abs=1e-6
            )


def test_change__from_the_undefended_of_the_same_seed(whole: list[Any]) -> None:
    """The wave of gaussian is that of the undefended, so the difference is the same everywhere;
    dpsgd's is reversed."""
    same, other = at(whole, "gaussian scale=0.1"), at(whole, LEAST)
    assert same.auc_change == OverModels(
        n=5, mean=-0.1, ci=None, ci_simultaneous=None, sd=0.0, least=-0.1, greatest=-0.1, void=""
    )
    assert other.auc_change is not None and other.auc_change.mean == pytest.approx(-0.105)
    assert other.auc_change.sd == pytest.approx(2 * np.sqrt(0.001 / 4), abs=1e-6)
    assert whole[0].auc_change is None
    more = change({0: 0.5, 2: 0.6, 5: 0.9}, {2: 0.4, 0: 0.8, 7: 0.0})
    assert (more.n, more.mean, more.least, more.greatest) == (2, -0.05, -0.3, 0.2)


def test_use_over_untrained__of_the_same_seed(whole: list[Any]) -> None:
    """The untrained encoder's wave is that of the trained one reversed, so the difference has
    twice its spread; that of the undefended federation is told, too."""
    for name in ("no defence", "gaussian scale=0.1"):
        over, knn = at(whole, name).knn_over_untrained, PLANTED[name][2]
        assert over.mean == pytest.approx(knn - 0.6)
        assert over.sd == pytest.approx(2 * np.sqrt(0.001 / 4) / 10, abs=1e-6)


def test_groups__of_models_in_which_some_defend_themselves(whole: list[Any]) -> None:
    own = at(whole, LEAST)
    assert own.defended is not None and own.defended.mean == pytest.approx(0.52)
    assert own.undefended is not None and own.undefended.mean == pytest.approx(0.64)
    assert own.group_difference is not None
    assert own.group_difference.mean == pytest.approx(-0.12)
    assert own.group_difference.sd == pytest.approx(np.sqrt(0.00025), abs=1e-6)
    assert sum(point.group_difference is not None for point in whole) == 1
    sides = {"defended": {0: 0.5}, "undefended": {0: 0.6, 2: 0.7}}
    rows = [
        row("p", seed, "a", auc, subject=f"group/{group}")
        for group, aucs in sides.items() for seed, auc in aucs.items()
    ]  # fmt: skip
    both = groups(study_of_rows(rows), "p", "a")
    undefended, difference = both["undefended"], both["group_difference"]
    assert undefended is not None and undefended.mean == 0.65
    assert difference is not None and (difference.n, difference.mean) == (1, -0.1)
    for few in (rows[:1], rows[1:]):
        assert {*groups(study_of_rows(few), "p", "a").values()} == {None}
    assert {*groups(study_of_rows(rows), "p", "b").values()} == {None}


def test_front__is_what_a_naive_search_finds(whole: list[Any]) -> None:
    places = {label: (max(a, b), knn) for label, (a, b, knn) in PLANTED.items()}
    naive = {
        label for label, (auc, knn) in places.items()
        if not any(a <= auc and k >= knn and (a, k) != (auc, knn) for a, k in places.values())
    }  # fmt: skip
    assert {point.point for point in whole if point.front} == naive
    assert naive == {"gaussian scale=0.01", LEAST, "gaussian scale=1.0",
                     "dpsgd noise_multiplier=9.0"}  # fmt: skip


@pytest.mark.parametrize(
    ("other", "one", "wanted"),
    [
        ((0.5, 0.8), (0.5, 0.8), False), ((0.4, 0.8), (0.6, 0.8), True),
        ((0.4, 0.8), (0.5, 0.8), False), ((0.5, 0.9), (0.4, 0.8), True),
        ((0.5, 0.9), (0.5, 0.8), True), ((0.4, 0.7), (0.5, 0.8), False),
        ((0.6, 0.9), (0.5, 0.8), False), ((None, 0.9), (0.5, 0.8), False),
        ((0.4, None), (0.5, 0.8), False), ((0.4, 0.9), (None, 0.8), True),
        ((0.4, 0.9), (0.5, None), True), ((None, None), (None, None), True),
    ],
)  # fmt: skip
def test_beats__as_good_in_both_and_better_in_one(
    other: Any, one: Any, wanted: bool, whole: list[DefencePointRow]
) -> None:
    def point(auc: float | None, knn: float | None) -> DefencePointRow:
        bare = whole[0]
        leak = replace(bare.leak, auc=replace(bare.leak.auc, mean=auc))
        return replace(bare, leak=leak, knn=replace(bare.knn, mean=knn))

    assert beats(point(*other), point(*one)) is wanted


def test_choice__the_least_leaking_and_what_cannot_be_told_apart(whole: list[Any]) -> None:
    """0.95 of 0.80 is 0.76: the strong ones are out. dpsgd leaks least; gaussian 0.1 is 0.005 off,
    the others 0.095 and more with an error of 0.0141, so that t is 6.7 and 7.4, where one side of
    0.05 / 3 asks 3.2 of four degrees of freedom."""
    candidates, least, alike, chosen = answer(whole)
    assert candidates == ["no defence", "gaussian scale=0.01", "gaussian scale=0.1", LEAST]
    assert least == LEAST and alike == ["gaussian scale=0.1"]
    table = TradeoffView().sections(made())[0].table()
    bold = [table.rows[at][0] for at in table.marked]
    assert chosen == ["gaussian scale=0.1", LEAST] == bold


def points_of(aucs: Any, knns: Any, names: Any = None, failed: int = 0) -> list[DefencePointRow]:
    """Points of one attack with these AUCs and kNN by seed, of which the first leaks."""
    names = names or [f"p{i}" for i in range(len(aucs))]
    blank = point_rows(made(seeds=1))[0]
    points = []
    for i, (name, own, knn) in enumerate(zip(names, aucs, knns, strict=True)):
        auc = replace(blank.leak.auc, mean=float(np.mean(own)), ci_simultaneous=(0.51, 0.99))
        leak = replace(blank.leak, attack="a", by_seed=dict(enumerate(own)), auc=auc)
        by_seed = {} if knn is None else {seed: knn for seed in range(len(own))}
        more = {"best": "a", "failed": failed * (i == 1), "leak": leak, "knn_by_seed": by_seed}
        points.append(replace(blank, point=name, **more))
    return points


@pytest.mark.parametrize(("others", "alike"), [(0, []), (2, ["none"])])
def test_choice__each_candidate_makes_the_others_harder_to_tell(
    others: int, alike: list[str]
) -> None:
    """t is 2.6 with four degrees of freedom: one side of 0.05 asks 2.13, of 0.05 / 3 asks 3.19."""
    error = np.sqrt(0.001 / 4 / 5)
    aucs = [[0.5 + 2.6 * error + moved for moved in WAVE], [0.5] * SEEDS]
    aucs += [[0.9 + moved for moved in WAVE]] * others
    names = ["none", "least", "one", "two"][: len(aucs)]
    _, least, others_alike, _ = answer(points_of(aucs, [0.8] * len(aucs), names))
    assert (least, others_alike) == ("least", alike)


def test_choice__holds_the_least_leaking_one_in_at_least_95_percent() -> None:
    """Four equal points and one that leaks more, each of five models: the truly least leaking ones
    are alike, and each of them is named, or chosen, in all but 5 % of the draws."""
    rng, lost_one, told = np.random.default_rng(0), 0, 0
    points = points_of([[0.0]] * 6, [0.8] * 6)
    knn = dict.fromkeys(range(SEEDS), 0.8)
    for _ in range(60):
        aucs = rng.normal(0.6, 0.02, (6, SEEDS))
        aucs[0] += 0.2
        drawn = [
            replace(
                point,
                knn_by_seed=knn,
                leak=replace(
                    point.leak,
                    by_seed=dict(enumerate(own)),
                    auc=replace(point.leak.auc, mean=float(np.mean(own))),
                ),
            )
            for point, own in zip(points, aucs.tolist(), strict=True)
        ]
        _, least, alike, _ = answer(drawn)
        lost_one += "p3" not in {least, *alike}
        told += "p0" not in alike
    assert lost_one <= 5 and told >= 54


@pytest.mark.parametrize(
    ("knn", "failed", "least"),
    [(0.76, 0, "p1"), (0.7601, 0, "p1"), (0.7599, 0, None), (0.76, 1, None), (None, 0, None)],
)
def test_choice__at_five_percent_of_the_undefended_use(
    knn: float | None, failed: int, least: str | None
) -> None:
    aucs = [[0.7, 0.71, 0.72], [0.6, 0.61, 0.62]]
    points = points_of(aucs, [0.8, knn], failed=failed)
    candidates, found, *_ = answer(points)
    assert found == least
    assert candidates == (["p0", "p1"] if least else ["p0"])
    if least and knn:
        spare = at(choose(points), least).spare
        assert spare is not None and spare.mean == pytest.approx(knn - 0.76)


def test_choice__nothing_without_the_undefended() -> None:
    bare, *others = points_of([[0.7], [0.6]], [0.8, 0.8])
    points = [replace(bare, best=None), *others]
    assert answer(points) == ([], None, [], [])
    assert {point.spare for point in choose(points)} == {None}


def test_failed_run__is_named_and_its_point_no_candidate(tmp_path: Path) -> None:
    study = made(broken=(LEAST, 3), folder=tmp_path)
    points = point_rows(study)
    point = at(points, LEAST)
    assert (point.finished, point.failed) == (4, 1)
    assert answer(points)[1] == "gaussian scale=0.1"
    write(study)
    text = (tmp_path / "study.html").read_text(encoding="utf-8")
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
    snapshot(TradeoffView().sentence(made()))


def wide(report: Any) -> None:
    """Seeds that differ so much that three of them decide nothing, though each run leaks."""
    for one in report["attacks"]:
        one["auc"] = min(1.0, 0.7 + 4 * (one["auc"] - 0.7))
    report["verdict_code"] = "leaks"


def weak(report: Any) -> None:
    """AUCs next to 0.5, of a run that leaks all the same."""
    for one in report["attacks"]:
        one["auc"] = 0.5 + (one["auc"] - 0.7) / 10
    report["verdict_code"] = "leaks"


@pytest.mark.parametrize(
    ("edit", "seeds", "leaking"), [(wide, 3, 3), (weak, 5, 5), (lambda report: None, 1, 0)]
)
def test_sentence__seeds_that_decide_nothing_choose_nothing(
    edit: Callable[[Any], None], seeds: int, leaking: int, snapshot: Snapshot
) -> None:
    """What each run found stands beside what the seeds show, and neither denies the other."""
    study = made(edit=edit, seeds=seeds)
    (_, least, _, chosen), text = answer(point_rows(study)), TradeoffView().sentence(study)
    assert least is None and chosen == [] and TradeoffView().notes(study) == []
    assert not TradeoffView().sections(study)[0].table().marked
    assert f"{leaking} of {seeds} runs" in text and "do not measurably leak" not in text
    snapshot(text)


def test_choice__of_one_seed_is_not_set_bold() -> None:
    study = made(edit=lambda report: report.update(verdict_code="leaks"), seeds=1)
    _, least, _, chosen = answer(point_rows(study))
    assert least == "gaussian scale=0.1" and chosen == []


@pytest.mark.parametrize("code", ["collapsed", "leaks"])
def test_collapsed_runs__void_their_cells(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those whose attacks tell members apart: of such an encoder this says nothing."""

    def collapse(report: Any) -> None:
        if report["attacks"][0]["auc"] in (0.54, 0.55, 0.56, 0.57, 0.58):
            report["verdict_code"] = code
            report["health"] = {**report["health"], "collapsed": True}

    study = made(edit=collapse, folder=tmp_path)
    points, place = point_rows(study), "gaussian scale=0.1"
    point, void = at(points, place), "5 of 5 void: collapsed"
    assert {one.point: one.void for one in points if one.void} == {place: void}
    assert point.best is None and not point.front
    assert point.auc_change is not None and point.auc_change.void == void
    assert point.verdicts == {"collapsed": 5} and point.knn.n == 5
    assert place not in answer(points)[0]
    texts = draw(points).axes[0].get_legend_handles_labels()[1]  # type: ignore[union-attr]
    assert f"{place}: {void}" in texts
    latex = next(line for line in study.to_latex().splitlines() if line.startswith(place))
    assert f"– ({void})" in latex and "0.5" not in latex
    frame = study.compare("internal", "similarity").set_index("point").loc[[place]]
    assert {*frame["void"]} == {void} and frame["difference"].isna().all()
    monkeypatch.setattr(TradeoffView, "figures", lambda self, study: {})
    write(study)
    assert "of 5 of 30 runs, which are left out (collapsed 5)." in study.sentence
    assert f"– ({void})" in (tmp_path / "study.html").read_text(encoding="utf-8")


def test_sentence__names_all_that_it_cannot_be_told_from(
    whole: list[Any], snapshot: Snapshot
) -> None:
    bare, least = whole[0], at(whole, LEAST)
    for alike, models in (([], 1), (["no defence"], 2), (["x", "y", "z"], 3)):
        few = replace(least, knn=replace(least.knn, n=models), choice="least")
        others = [replace(few, point=name, choice="alike") for name in alike if name in "xyz"]
        first = replace(bare, choice="alike" * ("no defence" in alike))
        snapshot(defences_sentence([first, few, *others]).partition("]. ")[2])


@pytest.mark.parametrize(
    ("epsilon", "standing", "told"),
    [(19.0, "heuristic", "19 for one client, heuristic"),
     (21.0, "guaranteed", "21 for one client, no meaningful guarantee"),
     (None, "guaranteed", "none for one client, no meaningful guarantee"), (None, None, "–")],
)  # fmt: skip
def test_epsilon__over_twenty_promises_nothing(
    whole: list[Any], epsilon: float | None, standing: str | None, told: str
) -> None:
    assert guarantee(epsilon, standing, "client") == told
    least = replace(at(choose(whole), LEAST), epsilon=epsilon, standing=standing)
    text = defences_sentence([whole[0], least])
    assert ("Its epsilon is no" in text) == ("meaningful" in told)


def test_undefended__without_a_result_nothing_is_compared() -> None:
    settings: Study = parse(STUDY, FLAGS.split()).settings
    study = study_of([(cell.point, cell.grid, 0, None) for cell in settings.points])
    points = point_rows(study)
    assert defences_sentence(choose(points)).startswith("The undefended federation has no result")
    assert TradeoffView().notes(study) == [] and TradeoffView().notes(made()) == [COSTS]
    assert draw(points) is None and not any(point.front for point in points)


def test_figure__joins_each_defence_and_names_its_strengths(whole: list[Any]) -> None:
    axes = draw(whole).axes[0]  # type: ignore[union-attr]
    names = {str(line.get_label()) for line in axes.lines}
    assert {
        "no defence",
        "gaussian",
        "dpsgd",
        "Pareto front",
        "95 % of the undefended kNN",
    } <= names
    assert [text.get_text() for text in axes.texts] == ["0.01", "0.1", "1.0", "1.0", "9.0"]


def test_shown__in_terminal_and_page(
    tmp_path: Path, snapshot: Snapshot, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No word is broken on 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    study = made(folder=tmp_path)
    write(study)
    show(study, False)
    lines = capsys.readouterr().out
    table = lines.partition(COSTS)[0]
    assert max(map(len, table.splitlines())) <= 80 and "similarity 0.70 [0.66, 0.74]" in table
    assert all(word in table.split() for word in ("guaranteed", "internal", "gaussian"))
    snapshot(lines.partition("Report:")[0])
    text = (tmp_path / "study.html").read_text(encoding="utf-8")
    assert not re.findall(r"<th>(.*?)</th>", text)  # each head has a title
    document = Page(text)
    assert sum(link.startswith("data:") for link in document.loads) == 1
    snapshot(document.text())


def test_rename__reaches_defences_and_the_legend() -> None:
    """What is undefended stays so, by whatever name."""
    study = made()
    names = {"gaussian": "Gaussian noise", "dpsgd": "DP-SGD", "no defence": "nothing"}
    paper = study.rename(names | {"scale": "sigma", "similarity": "cosine"})
    points = point_rows(paper)
    named = ["nothing", "Gaussian noise sigma=0.01", "DP-SGD noise_multiplier=1.0"]
    assert [points[i].point for i in (0, 1, 4)] == named
    figure = draw(points)
    assert figure is not None
    legend = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"nothing", "Gaussian noise", "DP-SGD"} <= legend
    assert not legend & {"gaussian", "dpsgd", "no defence"}
    sentences = [TradeoffView().sentence(one) for one in (study, paper)]
    assert "DP-SGD noise_multiplier=1.0 leaks least" in sentences[1]
    assert "less than nothing, but" in sentences[1] and "cosine has AUC" in sentences[1]
    with pytest.raises(InputError, match="unknown name of this study 'none'; did you mean"):
        study.rename({"none": "off"})
    assert "DP-SGD" in paper.to_latex() and "DP-SGD" not in study.to_latex()
