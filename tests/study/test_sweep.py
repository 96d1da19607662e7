"""A sweep of planted reports: its page, its sentences, its table, other names in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from fedmia import InputError, StudyResult
from fedmia.statistics.pvalues import holm
from tests.fake_runs import Studies, compare, golden, tables
from tests.report.conftest import Page
from tests.snapshots import Snapshot

FLAGS = "--over strategy=fedavg,fedprox --over partition.alpha=0.1,1 --attacks similarity --seeds 3"
FIRST, LAST = "strategy=fedavg, partition.alpha=0.1", "strategy=fedprox, partition.alpha=1.0"
FAILED = "strategy=fedprox_partition.alpha=1.0_seed=0"  # so that places are no seeds
# What `ascent` adds to its control in the models of the first point and of the last.
ADDED = {FIRST: [0.0, 0.02, 0.01], LAST: [0.0, -0.9, -0.5]}


def planted(name: str) -> Any:
    """AUC 0.6 + seed/100, with fedprox 0.05 + seed/50 higher; one run failed, and one verdict of
    each point leaks."""
    if name == FAILED:
        return "no <images>"
    seed, prox = int(name[-1]), "fedprox" in name
    point = name.rpartition("_seed=")[0].replace("_", ", ")
    report, more = golden(), (0.05 + seed / 50) * prox
    ascent = next(row for row in report["attacks"] if row["name"] == "ascent")
    ascent |= {"auc": 0.55, "choices": {"steps": 2, "lr": 0.01}}
    one = {"name": "<b>one", "auc": round(0.6 + seed / 100 + more, 6), "choices": {}}
    report["attacks"] = [report["attacks"][0] | one, ascent]
    control = {**report["attacks"][0], "name": "ascent", "auc": 0.5}
    report |= {"controls": {"untrained": [control]}, "pixels": None, "not_run": {}}
    added = ADDED.get(point, [0.02] * 3)[seed]
    report["paired"] = [report["paired"][0] | {"difference": added}]
    report["utility"] |= {"knn": 0.8, "linear": 0.9}
    report["utility_after_attack"] = {**report["utility_untrained"], "knn": 0.7 - more}
    report["verdict"] = "One sentence."
    report["verdict_code"] = "leaks" if seed == 1 else "not-established"
    report["versions"] |= {"commit": f"{seed == 0}"}
    own = {"attack": "ascent", "size": 8, "auc": 0.7, "auc_ci": [0.6, 0.8], "low": None,
           "high": None, "n_member_sets": 2, "n_nonmember_sets": 2}  # fmt: skip
    control = {"name": "ascent-zero", "auc": 0.5, "auc_ci": [0.4, 0.6],
               "difference": 0.1 + seed / 100, "difference_ci": [0.0, 0.2]}  # fmt: skip
    report["sets"] = [
        {**own, "judged": "mean", "controls": [control]},
        {**own, "judged": "alone", "controls": []},
    ]  # fmt: skip
    return report


@pytest.fixture(scope="module")
def compared(studies: Studies, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return studies.plant(FLAGS, planted, tmp_path_factory.mktemp("sweep") / "OUT")


@pytest.mark.usefixtures("painted")
def test_page__compares_escapes_and_leads_to_each_run(
    studies: Studies, tmp_path: Path, snapshot: Snapshot
) -> None:
    """Means and their intervals over seeds, controls, choices, sets and differences between points:
    every number that a reader sees."""
    out = tmp_path / "OUT"
    study = studies.plant(FLAGS, planted, out)
    ran = compare(out)
    assert ran.code == 1 and ran.out.endswith(f"{study.sentence}\nReport: {out / 'study.html'}\n")
    assert f"{FAILED} failed: no <images>" in ran.out.splitlines()
    text = (out / "study.html").read_text(encoding="utf-8")
    assert not re.findall(r"<th>(.*?)</th>", text)  # each head has a title
    document = Page(text)
    snapshot(document.text().partition("\nThe study\nseed")[0])
    pictures = [link for link in document.loads if link.startswith("data:")]
    assert len(pictures) == 2 and document.loads[-1].endswith("_seed%3D2/report.html")
    assert len(document.loads) - len(pictures) == 11  # a link to each finished run
    sections = set(re.findall(r'section id="([^"]+)"', text))
    assert sections == set(re.findall(r'href="#([^"]+)"', text))
    for name in ("attacks", "pairs"):
        assert (out / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG")


def test_tests__are_two_sided_over_models_and_one_family_of_the_page(compared: StudyResult) -> None:
    """A difference may be under 0, and its interval is cut at -1 alone."""
    shown, tested = tables(compared), [0.1, 0.11, 0.12]
    rows = [*shown["Attacks minus their paired controls"], *shown["Sets of images"]]
    values = [ADDED[FIRST], None, None, ADDED[LAST][1:], *[tested] * 3, tested[1:], *[None] * 4]
    ps = [None if v is None else float(ttest_1samp(v, 0.0).pvalue) for v in values]
    for name, wanted in (("p", ps), ("p, Holm", holm(ps))):
        texts = [None if row[name] == "–" else float(row[name]) for row in rows]
        for text, p in zip(texts, wanted, strict=True):
            assert text is None if p is None else text == pytest.approx(p, abs=5e-3, rel=5e-2)
    assert rows[3]["difference, 95 %"] == "-0.700 [-1.000, +1.000]"


def test_notes_and_sentence__what_a_reader_of_the_means_must_know(
    compared: StudyResult, snapshot: Snapshot
) -> None:
    for text in (*compared.about["notes"], compared.sentence):
        snapshot(text)


def test_point__numbers_over_models(compared: StudyResult) -> None:
    points = compared.points
    own = points[(points["metric"] == "knn") & (points["subject"] == "utility")]
    own = own[own["control"].isna()]
    assert list(own["mean"]) == [0.8] * 4 and list(own["n"]) == [3, 3, 3, 2]
    auc = points[(points["attack"] == "<b>one") & (points["metric"] == "auc")].iloc[0]
    assert (auc["n"], auc["mean"], auc["sd"], auc["least"]) == (3, 0.61, 0.01, 0.6)
    # Student's quantile of 2 degrees of freedom is 4.303.
    assert np.isclose(auc["high"] - auc["mean"], 0.02484, atol=1e-5)


def test_void_run__counts_in_no_number_of_an_attack(studies: Studies, tmp_path: Path) -> None:
    """Each table, figure, sentence and frame says how many runs of a point are void, and why; what
    no attack measured stays."""

    def edited(name: str) -> Any:
        report = planted(name)
        if name == "strategy=fedavg_partition.alpha=0.1_seed=0":
            report["verdict_code"] = "control-failed"
        return report

    study, void = studies.plant(FLAGS, edited, tmp_path / "OUT"), "1 of 3 void: control-failed"
    assert study.sentence.endswith("of 1 of 11 runs, which are left out (control-failed 1).")
    shown = tables(study)
    for title, column in (
        ("Attacks, by point", "mean AUC, 95 %"),
        ("Attacks minus their paired controls", "difference, 95 %"),
        ("Sets of images", "mean AUC, 95 %"),
    ):
        found = {row["point"] for row in shown[title] if void in row[column]}
        assert found == {FIRST}, title
    assert shown["Utility and verdicts"][0]["weighted kNN, 95 %"] == "0.800 (3 equal)"
    assert f"({void})" in study.to_latex()
    frame = study.compare("<b>one", "ascent").set_index("point")
    assert frame["void"].to_dict() == {p: void * (p == FIRST) for p in study.by_point()}
    assert list(frame["models"]) == [2, 3, 3, 2]  # of the last a run failed
    labels = [t.get_text() for t in study.figure("attacks").axes[0].get_yticklabels()]
    assert [void.replace(", ", "\n") in name for name in labels] == [True, False, False, False]
    own = study.points[(study.points["point"] == FIRST) & (study.points["metric"] == "auc")]
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
    row = tables(paper)["Attacks, by point"][1]
    assert (row["attack"], row["chosen"]) == ("Ascent (ours)", "steps=2, lr=0.01 3")
    assert not re.search("One", compared.to_latex())  # the study itself stays


def test_rename__reaches_points_options_and_values(compared: StudyResult) -> None:
    paper = compared.rename({"fedavg": "FedAvg", "partition.alpha": "alpha", "0.1": "non-IID"})
    points, shown = [*paper.by_point()], tables(paper)
    assert points[:2] == ["strategy=FedAvg, alpha=non-IID", "strategy=FedAvg, alpha=1.0"]
    assert [row["point"] for row in shown["Utility and verdicts"]] == points
    assert {*paper.points["point"]} == {*paper.table["point"]} == {*points}
    told = {
        (row["option"], row["from"], row["to"])
        for row in shown["Differences between points, paired by seed"]
    }
    assert told == {("alpha", "non-IID", "1.0"), ("strategy", "FedAvg", "fedprox")}
    labels = [t.get_text() for t in paper.figure("attacks").axes[0].get_yticklabels()]
    assert labels[0] == "strategy=FedAvg\nalpha=non-IID" and "FedAvg" in paper.to_latex()
    whole = paper.rename({points[0]: "ours"})  # a point, of the names that it has now
    assert [*whole.by_point()][0] == "ours" and [*paper.by_point()] == points
    assert [*compared.by_point()][0] == FIRST


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


def test_figure_and_view__unknown_ones_are_refused(compared: StudyResult) -> None:
    with pytest.raises(InputError, match="unknown figure 'attack'; did you mean 'attacks'"):
        compared.figure("attack")
    with pytest.raises(InputError, match="unknown view 'tradeoff'"):
        compared.to_latex("tradeoff")
