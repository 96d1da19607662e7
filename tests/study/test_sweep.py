"""Means over models, their intervals, Holm's correction, and the page: known answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmia.settings.errors import InputError
from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import p_value
from fedmia.study.command import show, write
from fedmia.study.result import StudyResult
from fedmia.study.rows import PointRow
from fedmia.study.views.sweep import (
    SweepView,
    attack_rows,
    control_rows,
    differences,
    point_rows,
)
from tests.report.conftest import Page
from tests.snapshots import Snapshot
from tests.study.planted import golden, study_of

POINTS = [(s, a) for s in ("fedavg", "fedprox") for a in (0.1, 1.0)]


def report_at(strategy: str, seed: int) -> dict[str, Any]:
    report = golden()
    more = (0.05 + seed / 50) * (strategy == "fedprox")
    ascent = next(row for row in report["attacks"] if row["name"] == "ascent")
    ascent |= {"auc": 0.55, "choices": {"steps": 2, "lr": 0.01}}
    one = {"name": "<b>one", "auc": 0.6 + seed / 100 + more, "choices": {}}
    report["attacks"] = [report["attacks"][0] | one, ascent]
    control = {**report["attacks"][0], "name": "ascent", "auc": 0.5}
    report |= {"controls": {"untrained": [control]}, "pixels": None}
    report["paired"] = [report["paired"][0] | {"difference": 0.02}]
    report["utility"] |= {"knn": 0.8, "linear": 0.9}
    report["utility_after_attack"] = {**report["utility_untrained"], "knn": 0.7 - more}
    report["verdict"] = "One sentence."
    report["verdict_code"] = "leaks" if seed == 1 else "not-established"
    report["versions"] = {"commit": f"{seed == 0}"}
    own = {"attack": "ascent", "size": 8, "auc": 0.7, "auc_ci": [0.6, 0.8], "low": None,
           "high": None, "n_member_sets": 2, "n_nonmember_sets": 2}  # fmt: skip
    control = {"name": "ascent-zero", "auc": 0.5, "auc_ci": [0.4, 0.6],
               "difference": 0.1 + seed / 100, "difference_ci": [0.0, 0.2]}  # fmt: skip
    report["sets"] = [
        {**own, "judged": "mean", "controls": [control]},
        {**own, "judged": "alone", "controls": []},
    ]  # fmt: skip
    return report


def made(folder: Path = Path("STUDY"), **codes: str) -> StudyResult:
    """Two strategies x two alphas x three seeds: AUC 0.6 + seed/100, fedprox 0.05 + seed/50
    higher; one run failed, and one verdict of each point leaks."""
    runs: list[Any] = []
    for strategy, alpha in POINTS:
        grid = {"strategy": strategy, "partition.alpha": alpha}
        point = f"strategy={strategy}, partition.alpha={alpha}"
        for seed in range(3):
            lost = (strategy, alpha, seed) == ("fedprox", 1.0, 2)
            report = report_at(strategy, seed)
            if (strategy, alpha, seed) == ("fedavg", 0.1, 0):
                report |= codes
            runs.append((point, grid, seed, "no <images>" if lost else report))
    return study_of(runs, folder=folder, seeds=3)


@pytest.fixture(scope="module")
def compared() -> StudyResult:
    return made()


def test_points__means_over_seeds(compared: StudyResult) -> None:
    auc = attack_rows(compared)[0].auc
    assert (auc.n, auc.mean, auc.sd) == (3, 0.61, 0.01)
    # Student's quantile of 2 degrees of freedom is 4.303.
    assert auc.ci == pytest.approx((0.61 - 0.02484, 0.61 + 0.02484), abs=1e-5)
    last = point_rows(compared)[3]
    assert (last.finished, last.failed) == (2, 1)
    assert last.verdicts == {"leaks": 1, "not-established": 1}
    pairs, sets = control_rows(compared)
    whole, *_, alone = sets
    assert whole.auc is not None and whole.auc.n == 3
    assert (whole.difference.mean, alone.other) == (0.11, None)
    assert (whole.judged, whole.size, whole.other) == ("mean", 8, "ascent-zero")
    # t = 0.11 / (0.01 / sqrt(3)) = 19.05; the pairs' differences are all equal.
    assert whole.p == pytest.approx(0.00274, abs=1e-5) and alone.p is None
    assert [row.p for row in pairs] == [None] * 4
    assert {row.p_holm for row in pairs} == {None}
    assert [row.p_holm for row in sets] == holm([row.p for row in sets])
    assert whole.p_holm == pytest.approx(4 * 0.00274, abs=1e-4)


def test_attacks__controls_and_choices_beside(compared: StudyResult) -> None:
    rows = {(row.point, row.attack): row for row in attack_rows(compared)}
    point = "strategy=fedavg, partition.alpha=0.1"
    one, ascent = rows[point, "<b>one"], rows[point, "ascent"]
    assert one.controls == {} and ascent.controls["untrained"].mean == 0.5
    assert one.choices == {} and ascent.choices == {"steps=2, lr=0.01": 3}
    assert len(rows) == 8 and (one.auc.mean or 0) > (ascent.auc.mean or 0)


def test_pairs__have_a_p_of_the_differences(compared: StudyResult) -> None:
    table = compared.table.copy()
    pairs = (table["metric"] == "auc_difference") & (table["subject"] == "pair")
    table.loc[pairs, "value"] = [0.0, 0.02, 0.01] * 3 + [-0.9, -0.5]
    moved = made()
    moved.table = table
    rows, sets = control_rows(moved)
    assert rows[0].p == pytest.approx(p_value([0.0, 0.02, 0.01]))
    assert [r.p_holm for r in [*rows, *sets]] == holm([r.p for r in [*rows, *sets]])
    # A difference may be under 0, and its interval is cut at -1 alone.
    assert rows[3].difference.ci == (-1.0, 1.0)


def test_differences__at_equal_seeds_between_neighbours(compared: StudyResult) -> None:
    rows = [row for row in differences(compared) if row.attack == "<b>one"]
    compared_points = [(row.option, row.first, row.second, row.where) for row in rows]
    assert compared_points == [
        ("partition.alpha", "0.1", "1.0", "strategy=fedavg"),
        ("strategy", "fedavg", "fedprox", "partition.alpha=0.1"),
        ("strategy", "fedavg", "fedprox", "partition.alpha=1.0"),
        ("partition.alpha", "0.1", "1.0", "strategy=fedprox"),
    ]
    whole, short = rows[1].difference, rows[2].difference
    assert (whole.n, whole.mean) == (3, 0.07) and (short.n, short.mean) == (2, 0.06)
    assert whole.ci == pytest.approx((0.07 - 0.04968, 0.07 + 0.04968), abs=1e-5)


def test_use__before_the_attacked_rounds_and_after_them(compared: StudyResult) -> None:
    point = point_rows(compared)[0]
    assert (point.knn.mean, point.knn_after_attack.mean) == (0.8, 0.7)
    lost = [row.difference.mean for row in differences(compared)
            if row.option == "strategy" and row.measure == "kNN after the attack"]  # fmt: skip
    assert lost == [-0.07, -0.06]


def test_page__compares_escapes_and_leads_to_each_run(tmp_path: Path, snapshot: Snapshot) -> None:
    study = made(tmp_path)
    write(study)
    text = (tmp_path / "study.html").read_text(encoding="utf-8")
    assert not re.findall(r"<th>(.*?)</th>", text)  # each head has a title
    document = Page(text)
    snapshot(document.text())
    pictures = [link for link in document.loads if link.startswith("data:")]
    assert len(pictures) == 2 and document.loads[-1].endswith("_seed%3D1/report.html")
    assert len(document.loads) - len(pictures) == 11  # a link to each finished run
    for name in ("attacks", "pairs"):
        assert (tmp_path / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")


def test_notes__what_a_reader_of_the_means_must_know(
    compared: StudyResult, snapshot: Snapshot
) -> None:
    view = SweepView()
    one = study_of([("", {}, 0, golden())])
    snapshot(view.notes(one)[0])
    assert view.notes(study_of([("", {}, seed, golden()) for seed in (0, 1)])) == []
    snapshot(view.notes(compared)[0])
    snapshot(view.sentence(compared))
    snapshot(view.sentence(made(verdict_code="shift")))


def test_cells__name_a_run_by_its_own_folder(compared: StudyResult) -> None:
    assert all(Path(str(c.path)).name == c.name for c in compared.cells if c.path)
    states = [cell.state for cell in compared.cells]
    assert states == ["finished"] * 11 + ["failed"]
    assert list(compared.failed.values()) == ["no <images>"]


def test_void_run__counts_in_no_number_of_an_attack(
    compared: StudyResult, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each table, figure, sentence and frame says how many runs of a point are void, and why; what
    no attack measured stays."""
    monkeypatch.setenv("COLUMNS", "160")
    place, void = "strategy=fedavg, partition.alpha=0.1", "1 of 3 void: control-failed"
    assert not compared.void(place)
    study = made(tmp_path, verdict_code="control-failed")
    sections = SweepView().sections(study)
    for section, column in zip(sections, ("auc", "difference", "auc"), strict=False):
        texts = {row.point == place: getattr(row, column).void for row in section.rows}
        assert texts == {True: void, False: ""}
    assert study.point_row(PointRow, place).knn.n == 3
    write(study)
    assert study.sentence.endswith("of 1 of 11 runs, which are left out (control-failed 1).")
    show(study, False)
    assert f"({void})" in capsys.readouterr().out
    frame = study.compare("<b>one", "ascent").set_index("point")
    assert frame["void"].to_dict() == {p: void * (p == place) for p in study.by_point()}
    assert list(frame["models"]) == [2, 3, 3, 2]  # of the last a run failed
    labels = [t.get_text() for t in study.figure("attacks").axes[0].get_yticklabels()]
    assert [void.replace(", ", "\n") in name for name in labels] == [True, False, False, False]
    own = study.points[(study.points["point"] == place) & (study.points["metric"] == "auc")]
    assert {*own[own["attack"].notna()]["void"]} == {void}


def test_latex_and_names__of_a_paper(compared: StudyResult) -> None:
    assert "<b>one" in {*compared.points["attack"]}
    paper = compared.rename({"<b>one": "One & only", "ascent": "Ascent (ours)"})
    assert "<b>one" not in {*paper.points["attack"]} >= {"One & only"}
    text = paper.to_latex()
    assert "One \\& only & 0.610 [0.585, 0.635] & 3" in text and "<b>one" not in text
    assert text.startswith("\\begin{tabular}") and "Ascent (ours)" in text
    assert {*paper.table["attack"].dropna()} >= {"One & only", "Ascent (ours)"}
    legend = paper.figure("attacks").legends[0]
    assert "One & only" in [text.get_text() for text in legend.get_texts()]
    (row,) = attack_rows(paper)[1:2]
    assert (row.attack, row.choices) == ("Ascent (ours)", {"steps=2, lr=0.01": 3})
    assert not re.search("One", compared.to_latex())  # the study itself stays


def test_rename__reaches_points_options_and_values(compared: StudyResult) -> None:
    paper = compared.rename({"fedavg": "FedAvg", "partition.alpha": "alpha", "0.1": "non-IID"})
    points = [*paper.by_point()]
    assert points[:2] == ["strategy=FedAvg, alpha=non-IID", "strategy=FedAvg, alpha=1.0"]
    assert [row.point for row in point_rows(paper)] == points
    assert {*paper.points["point"]} == {*paper.table["point"]} == {*points}
    told = {(row.option, row.first, row.second) for row in differences(paper)}
    assert told == {("alpha", "non-IID", "1.0"), ("strategy", "FedAvg", "fedprox")}
    labels = [t.get_text() for t in paper.figure("attacks").axes[0].get_yticklabels()]
    assert labels[0] == "strategy=FedAvg\nalpha=non-IID" and "FedAvg" in paper.to_latex()
    whole = paper.rename({points[0]: "ours"})  # a point, of the names that it has now
    assert [*whole.by_point()][0] == "ours" and [*paper.by_point()] == points
    assert [*compared.by_point()][0] == "strategy=fedavg, partition.alpha=0.1"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"ascnt": "x"}, "unknown name of this study 'ascnt'; did you mean 'ascent'"),
        ({"fedavgm": "x"}, "unknown name of this study 'fedavgm'; did you mean 'fedavg'"),
        ({"ascent": "<b>one"}, "two attacks of this study would be called '<b>one'"),
        ({"fedavg": "fedprox"}, "two points of this study would be called 'strategy=fedprox, "),
    ],
)
def test_rename__refuses_what_the_study_does_not_have(
    compared: StudyResult, names: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        compared.rename(names)


def test_compare__takes_an_attack_by_its_old_name_and_its_new_one(compared: StudyResult) -> None:
    paper = compared.rename({"ascent": "Ascent"}).rename({"Ascent": "Ours"})
    for name in ("ascent", "Ours"):
        assert {*paper.compare(name, "<b>one")["attack"]} == {"Ours"}


def test_figure__unknown_or_empty_is_refused(compared: StudyResult) -> None:
    with pytest.raises(ValueError, match="unknown figure 'attack'; did you mean 'attacks'"):
        compared.figure("attack")
    with pytest.raises(ValueError, match="no data"):
        study_of([("", {}, 0, None)]).figure("attacks")
    with pytest.raises(ValueError, match="unknown view 'tradeoff'"):
        compared.to_latex("tradeoff")


def test_points__every_number_over_the_models(compared: StudyResult) -> None:
    points = compared.points
    own = points[(points["metric"] == "knn") & (points["subject"] == "utility")]
    own = own[own["control"].isna()]
    assert list(own["mean"]) == [0.8] * 4 and list(own["n"]) == [3, 3, 3, 2]
    auc = points[(points["attack"] == "<b>one") & (points["metric"] == "auc")]
    assert np.isclose(auc["high"].iloc[0] - auc["mean"].iloc[0], 0.02484, atol=1e-5)
