"""Means over models, their intervals, Holm's correction, and the page: known answers."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from rich.console import Console

from fedmia.cli.command import parse
from fedmia.cli.commands import SWEEP
from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import p_value
from fedmia.study.engine import Study
from fedmia.study.folder import names
from fedmia.study.formats import SweepReport
from fedmia.study.points import differences, point_rows
from fedmia.study.views import sweep as sweep_module
from fedmia.study.views.sweep import SweepView, notes, results, sentence
from tests.report.conftest import Page
from tests.snapshots import Snapshot

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "active.json"


@pytest.fixture(scope="module")
def compared() -> SweepReport:
    """Two strategies x two alphas x three seeds: AUC 0.6 + seed/100, fedprox 0.05 + seed/50
    higher; one run failed, and one verdict of each point leaks."""
    line = "--grid strategy=fedavg,fedprox --grid partition.alpha=0.1,1 --partition dirichlet"
    sweep = parse(SWEEP, [*line.split(), "--seeds", "3"]).settings
    finished: dict[str, Any] = {}
    for cell in sweep.cells[:-1]:
        report = json.loads(GOLDEN.read_text(encoding="utf-8"))
        more = (0.05 + cell.seed / 50) * (cell.grid["strategy"] == "fedprox")
        ascent = next(row for row in report["attacks"] if row["name"] == "ascent")
        ascent |= {"auc": 0.55, "choices": {"steps": 2, "lr": 0.01}}
        one = {"name": "<b>one", "auc": 0.6 + cell.seed / 100 + more, "choices": {}}
        report["attacks"] = [report["attacks"][0] | one, ascent]
        report["controls"] = {"untrained": [{"name": "ascent", "auc": 0.5}]}
        report["paired"] = [report["paired"][0] | {"difference": 0.02}]
        report["utility"] |= {"knn": 0.8, "linear": 0.9, "after_attack": {"knn": 0.7 - more}}
        report["verdict"] = "One sentence."
        report["verdict_code"] = "leaks" if cell.seed == 1 else "not-established"
        report |= {"versions": {"commit": f"{cell.seed == 0}"}, "timing": {"total_s": 1.0}}
        control = {"name": "ascent-zero", "difference": 0.1 + cell.seed / 100}
        config = {"attack": "ascent", "judged": "mean", "size": 8, "auc": 0.7, "control": control}
        report["sets"] = [config, {**config, "judged": "alone", "control": None}]
        finished[cell.key] = (f"cells/{names([cell])[cell.key]}", report)
    failed = {sweep.cells[-1].key: "no <images>"}
    return SweepView().report(Study(sweep, sweep.cells, finished, failed, 2.0))


def test_points__means_over_seeds(compared: SweepReport) -> None:
    assert [p["grid"] for p in compared["points"]] == [
        {"strategy": s, "partition.alpha": a} for s in ("fedavg", "fedprox") for a in (0.1, 1.0)
    ]
    auc = compared["points"][0]["attacks"][0]["auc"]
    assert (auc["n"], auc["mean"], auc["sd"]) == (3, 0.61, 0.01)
    # Student's quantile of 2 degrees of freedom is 4.303.
    assert auc["ci"] == pytest.approx((0.61 - 0.02484, 0.61 + 0.02484), abs=1e-5)
    last = compared["points"][3]
    assert (last["finished"], last["failed"]) == (2, 1)
    assert last["verdicts"] == {"leaks": 1, "not-established": 1}
    whole, alone = compared["points"][0]["sets"]
    assert (whole["auc"]["n"], whole["difference"]["mean"], alone["control"]) == (3, 0.11, None)
    # t = 0.11 / (0.01 / sqrt(3)) = 19.05; of four points with such a set, the last has two models,
    # and the pairs' differences are all equal.
    assert whole["p"] == pytest.approx(0.00274, abs=1e-5)
    assert whole["p_holm"] == pytest.approx(4 * 0.00274, abs=1e-4) and alone["p"] is None


def test_differences__at_equal_seeds_between_neighbours(compared: SweepReport) -> None:
    rows = [r for r in compared["differences"] if r["attack"] == "<b>one"]
    told = [(r["option"], r["first"], r["second"], r["others"]) for r in rows]
    assert told == [
        ("partition.alpha", 0.1, 1.0, {"strategy": "fedavg"}),
        ("strategy", "fedavg", "fedprox", {"partition.alpha": 0.1}),
        ("strategy", "fedavg", "fedprox", {"partition.alpha": 1.0}),
        ("partition.alpha", 0.1, 1.0, {"strategy": "fedprox"}),
    ]
    whole, short = rows[1]["difference"], rows[2]["difference"]
    assert (whole["n"], whole["mean"]) == (3, 0.07) and (short["n"], short["mean"]) == (2, 0.06)
    assert whole["ci"] == pytest.approx((0.07 - 0.04968, 0.07 + 0.04968), abs=1e-5)


def test_differences__pair_equal_seeds_in_whatever_place_they_stand() -> None:
    """One run failed, and the points' runs stand in another order."""
    knns = {1: {0: None, 1: 0.1, 2: 0.3}, 2: {2: 0.4, 0: 0.9, 1: 0.2}}
    none = {"attacks": [], "linear": None, "knn_after_attack": None}
    cells: list[Any] = [
        {"grid": {"a": a}, "seed": seed, "results": none | {"knn": knn} if knn else None}
        for a, held in knns.items()
        for seed, knn in held.items()
    ]
    (found,) = differences(cells)
    assert (found["measure"], found["difference"]["n"]) == ("knn", 2)
    assert (found["difference"]["mean"], found["difference"]["sd"]) == (0.1, 0.0)


def test_use__before_the_attacked_rounds_and_after_them(compared: SweepReport) -> None:
    point = compared["points"][0]
    assert (point["knn"]["mean"], point["knn_after_attack"]["mean"]) == (0.8, 0.7)
    lost = [r["difference"]["mean"] for r in compared["differences"] if r["option"] == "strategy"
            and r["measure"] == "knn_after_attack"]  # fmt: skip
    assert lost == [-0.07, -0.06]


def test_page__compares_escapes_and_leads_to_each_run(
    compared: SweepReport, tmp_path: Path, snapshot: Snapshot
) -> None:
    name = "strategy=fedavg_partition.alpha=0.1_seed=0"
    (tmp_path / "cells" / name / "figures").mkdir(parents=True)
    (tmp_path / "cells" / name / "figures" / "roc.png").touch()
    document = Page(SweepView().page(compared, {"attacks": b"x", "pairs": b"y"}, tmp_path))
    snapshot(document.text())
    pictures = [link for link in document.loads if link.startswith("data:")]
    links = [link for link in document.loads if link not in pictures]
    place = f"cells/{quote(name)}"
    assert (len(pictures), len(links)) == (2, 12) and f"{place}/figures/roc.png" in links
    assert links[0] == f"{place}/report.html" and links[-1].endswith("/report.html")


def cell(grid: dict[str, Any], seed: int, shift: float, **more: Any) -> Any:
    """A finished run of two attacks, with a pair and three sets."""
    control = {"name": "placebo", "difference": 0.2 + shift}
    results = {
        "verdict_code": "leaks", "knn": 0.6 + shift, "linear": 0.7 + shift,
        "knn_after_attack": None,
        "attacks": [
            {"name": "one", "auc": 0.5 + shift, "tpr_at_1_percent_fpr": 0.1 + shift,
             "controls": {"untrained": 0.4 + shift}, "choices": {}},
            {"name": "two", "auc": 0.8 - shift, "tpr_at_1_percent_fpr": None,
             "controls": {"untrained": 0.45, "placebo": 0.48}, "choices": {"steps": seed}},
        ],
        "pairs": [{"attack": "one", "control": name, "difference": shift - less}
                  for name, less in (("zero", 0.0), ("loss-before", 0.1))],
        "sets": [
            {"attack": "one", "judged": "mean", "size": 8, "auc": 0.6 + shift, "control": control},
            {"attack": "one", "judged": "alone", "size": 8, "auc": 0.9, "control": None},
            {"attack": "one", "judged": "mean", "size": 16, "auc": 0.7, "control": None},
        ],
    }  # fmt: skip
    return {"grid": grid, "seed": seed, "state": "finished", "results": results} | more


def test_point__each_number_over_its_own_rows() -> None:
    lost = {"state": "failed", "results": None}
    cells = [cell({"a": 1}, 0, 0.0), cell({"a": 1}, 1, 0.02), cell({"a": 1}, 2, 0.0, **lost)]
    (point,) = point_rows(cells)
    assert (point["grid"], point["finished"], point["failed"]) == ({"a": 1}, 2, 1)
    one, two = point["attacks"]
    assert (one["name"], one["auc"]["mean"]) == ("one", 0.51)
    assert (one["tpr_at_1_percent_fpr"]["mean"], one["controls"]["untrained"]["mean"]) == (
        0.11, 0.41,
    )  # fmt: skip
    assert (two["name"], two["auc"]["mean"], two["tpr_at_1_percent_fpr"]["n"]) == ("two", 0.79, 0)
    assert two["controls"]["placebo"]["mean"] == 0.48
    assert (one["choices"], two["choices"]) == ({}, {"0": {"steps": 0}, "1": {"steps": 1}})
    pair, other = point["pairs"]
    assert (pair["attack"], pair["control"], pair["difference"]["mean"]) == ("one", "zero", 0.01)
    assert (other["control"], other["difference"]["mean"]) == ("loss-before", -0.09)
    assert pair["p"] == p_value([0.0, 0.02]) == pytest.approx(0.5)  # t is 1 of one degree
    told = [(s["attack"], s["judged"], s["size"], s["auc"]["mean"], s["control"])
            for s in point["sets"]]  # fmt: skip
    assert told == [
        ("one", "mean", 8, 0.61, "placebo"), ("one", "alone", 8, 0.9, None),
        ("one", "mean", 16, 0.7, None),
    ]  # fmt: skip
    whole = point["sets"][0]
    assert whole["difference"]["mean"] == 0.21 and whole["p"] == p_value([0.2, 0.22])
    tested = pair, other, whole
    assert [row["p_holm"] for row in tested] == holm([row["p"] for row in tested])
    assert point["sets"][1]["p_holm"] is None
    assert (point["knn"]["mean"], point["linear"]["mean"]) == (0.61, 0.71)
    # A difference may be under 0, and its interval is cut at -1 alone.
    (low,) = point_rows([cell({}, 0, -0.9), cell({}, 1, -0.5)])
    assert low["pairs"][0]["difference"]["ci"] == (-1.0, 1.0)


def test_results__keep_what_attacks_chose_and_both_aucs_of_each_pair() -> None:
    """The report of a run has two pairs of one attack, and one without images to compare."""
    report = json.loads(GOLDEN.read_text(encoding="utf-8"))
    (first, *_) = report["paired"]
    none = {"attack": "one", "control": "zero", "difference": None, "ci": None}
    report["versions"] = {"commit": None}
    report["paired"] = [first, {**first, "control": "loss-before", "auc_control": 0.4}, none]
    found = results(report)
    told = [(p["attack"], p["control"], p["auc"], p["auc_control"]) for p in found["pairs"]]
    auc, control = first["auc"], first["auc_control"]
    assert auc != control != 0.4 and told == [
        ("ascent", "ascent-zero", auc, control),
        ("ascent", "loss-before", auc, 0.4),
        ("one", "zero", None, None),
    ]
    choices = {row["name"]: row["choices"] for row in found["attacks"]}
    want = {row["name"]: row["choices"] for row in report["attacks"]}
    assert choices == want and {"steps", "lr"} <= choices["ascent"].keys()


def test_differences__of_each_attack_by_name() -> None:
    cells = [cell({"a": 1, "b": 7}, 3, 0.0), cell({"a": 2, "b": 7}, 3, 0.1)]
    other = cell({"a": 2, "b": 8}, 3, 0.3)
    other["results"]["attacks"].reverse()
    rows = list(differences([*cells, other]))
    found = {(r["option"], r["measure"], r["attack"]): r["difference"]["mean"] for r in rows}
    assert found == {
        ("a", "auc", "one"): 0.1, ("a", "auc", "two"): -0.1, ("a", "knn", None): 0.1,
        ("a", "linear", None): 0.1, ("b", "auc", "one"): 0.2, ("b", "auc", "two"): -0.2,
        ("b", "knn", None): 0.2, ("b", "linear", None): 0.2,
    }  # fmt: skip
    (first, *_), others = rows, [r["others"] for r in rows]
    assert (first["first"], first["second"]) == (1, 2)
    assert others == [{"b": 7}] * 4 + [{"a": 2}] * 4


def test_notes__what_a_reader_of_the_means_must_know(snapshot: Snapshot) -> None:
    def run(name: str, commit: str | None, code: str = "leaks") -> Any:
        results = {"commit": commit, "verdict_code": code}
        return {"name": name, "state": "finished", "results": results}

    one, two = parse(SWEEP, ["--seeds", "1"]).settings, parse(SWEEP, ["--seeds", "2"]).settings
    lost: Any = [{"name": n, "state": "failed", "results": None} for n in ("x", "y")]
    assert notes([run("a", "1"), run("b", "1")], two) == []
    for lines in (notes([run("a", "1")], one), notes([run("a", "1"), *lost, run("b", None)], two)):
        snapshot("\n".join(lines))
    told = [run("a", "1"), run("b", "1", "shift")]
    snapshot(sentence([*told, *lost]))
    assert sentence(told) == sentence([*told, *lost]).replace("of 4", "of 2").replace(
        "; failed and left out: 2", ""
    )


def test_cells__name_a_run_by_its_own_folder(compared: SweepReport) -> None:
    assert all(Path(str(c["path"])).name == c["name"] for c in compared["cells"] if c["path"])
    states = [c["state"] for c in compared["cells"]]
    assert states == ["finished"] * 11 + ["failed"] and compared["not_run"] == 0
    assert compared["cells"][-1]["reason"] == "no <images>" and compared["seeds"] == [0, 1, 2]
    assert [c["seed"] for c in compared["cells"]] == [0, 1, 2] * 4
    assert compared["timing"]["total_s"] == 2.0 and len(compared["timing"]["runs"]) == 11


def screen(view: Any, report: Any) -> str:
    """What the terminal shows of a study."""
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(view.terminal(report))
    view.more(report)(console)
    return console.export_text()


def test_marks__unsound_runs_in_every_comparison(
    compared: SweepReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point with a run that failed its control is marked in tables, terminal and figures."""
    report, place = copy.deepcopy(compared), {"strategy": "fedavg", "partition.alpha": 0.1}
    assert "‡" not in screen(SweepView(), report) and compared["points"][0]["grid"] == place
    report["points"][0]["verdicts"] = {"leaks": 2, "control-failed": 1}
    tables = SweepView().tables(report)
    for name in ("attacks", "pairs", "sets"):
        cells = [row.cells[2] for row in tables[name].rows]
        texts = [cell if isinstance(cell, str) else cell.text for cell in cells]
        rows = len(report["points"][0][name])  # type: ignore[literal-required]
        assert rows and [text.endswith(" ‡") for text in texts] == [
            i < rows for i in range(len(texts))
        ]
    ends = {tuple(row.cells[1:3]) for row in tables["differences"].rows}
    assert ends == {
        ("fedavg ‡", "fedprox"), ("fedavg", "fedprox"), ("0.1 ‡", "1.0"), ("0.1", "1.0"),
    }  # fmt: skip
    text = screen(SweepView(), report)
    assert "partition.alpha=0.1 ‡" in text and text.count("‡") == 2
    assert "\n‡ In runs with the verdict control-failed" in text
    report["cells"][0]["results"]["verdict_code"] = "shift"  # type: ignore[index]
    monkeypatch.setattr(sweep_module, "forest", lambda points, *rest: [name for name, _ in points])
    for drawn in SweepView().draw(report).values():
        assert [str(name)[-1] == "‡" for name in drawn or ()] == [True, False, False, False]
