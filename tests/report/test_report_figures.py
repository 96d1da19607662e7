"""Figures: each is a PNG where there is data and absent where there is none."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from fedmia import open_run
from fedmia.records import ClientInfo, Evaluation, SweepPoint
from fedmia.records.rows import Report, RoundRow
from fedmia.report.build import build_report
from fedmia.report.figures.draw import draw_all, figures, fingerprint
from fedmia.report.page import page
from tests.bank import Bank
from tests.made_up_runs import made_up_row
from tests.report.conftest import Page, alone, scored


def drawn(report: Report, run: Evaluation | None = None) -> dict[str, Any]:
    """The figures that the report has data for."""
    return {name: one for name, one in figures(report, run).items() if one.draw() is not None}


def test_files__of_a_run_say_what_they_show(bank: Bank) -> None:
    folder = bank.run("attacked")
    run = open_run(folder)
    files = sorted(path.name for path in (folder / "figures").iterdir())
    names = {name.partition(".")[0] for name in files}
    assert names >= {"attacks", "roc", "clients", "rounds", "ascent-losses"}
    assert files == sorted(f"{name}.{kind}" for name in names for kind in ("pdf", "png"))
    texts = set[str]()
    for name in names:
        with Image.open(folder / "figures" / f"{name}.png") as png:
            assert png.info["Report"] == fingerprint(run.records)
            texts.add(png.info["Description"])
        assert (folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    alts = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert len(texts) == len(names) and all(f'alt="{text}"' in alts for text in texts)


@pytest.mark.usefixtures("painted")
def test_draw_all__the_same_bytes_twice(run: Evaluation) -> None:
    bare = [replace(c, classes=(), defence=None) for c in run.clients[:1]]
    few = alone(run, run.attacks[0], pixels=None, curves=None, clients=bare, rounds=[])
    report = build_report(few)
    files = draw_all(few, report)
    assert [*files][:2] == ["attacks.png", "attacks.pdf"] and draw_all(few, report) == files
    assert all(len(data) > 5000 for name, data in files.items() if name.endswith(".png"))
    assert b"/Subject (" in files["attacks.pdf"]


def test_draw_all__nothing_to_draw_draws_nothing(run: Evaluation) -> None:
    bare = [replace(c, classes=()) for c in run.clients]
    empty = alone(run, pixels=None, curves=None, clients=bare, rounds=[])
    assert draw_all(empty, build_report(empty)) == {}


def test_page__each_figure_has_its_caption_its_text_and_its_place(
    run: Evaluation, report: Report
) -> None:
    there = drawn(report, run)
    texts = {name: (one.caption(), one.alt()) for name, one in there.items()}
    for name, (caption, alt) in texts.items():
        assert caption.endswith(".") and alt.endswith(".") and alt != caption, name
        assert re.search(r"\d", alt), f"{name} has no number: {alt}"
    text = page(report, dict.fromkeys(there, b"x"), run)
    document = Page(text)
    assert len(document.loads) == len(there) == 10 and "Other figures" not in text
    alts = re.findall(r'<img [^>]*alt="([^"]*)"', text)
    captions = [
        re.sub("<[^>]*>", "", caption)  # links to terms
        for caption in re.findall(r"<figcaption>(.*?)</figcaption>", text, re.DOTALL)
    ]
    shown = [(html.unescape(c), html.unescape(a)) for c, a in zip(captions, alts, strict=True)]
    assert sorted(shown) == sorted(texts.values())
    assert text.index("<h2>Rounds<") < text.index("<h2>Under ascent<")


def test_alt__has_the_numbers_of_the_rows(run: Evaluation, report: Report) -> None:
    every, rows = figures(report, run), {row.name: row for row in report.attacks}
    best = max(rows.values(), key=lambda row: row.auc or 0.0)
    low, high = best.low, best.high
    assert f"The highest is {best.auc:.2f} [{low:.2f}, {high:.2f}] ({best.name})" in (
        every["attacks"].alt()
    )
    found = max(rows.values(), key=lambda row: row.tpr_at_fpr["0.01"] or 0.0)
    tpr, ci = found.tpr_at_fpr["0.01"], found.tpr_at_fpr_ci["0.01"]
    assert ci is not None and every["roc"].alt() == (
        f"ROC curves of 4 attacks. At 1 % false positives {found.name} has the highest "
        f"true-positive rate, {tpr:.2f} [{ci[0]:.2f}, {ci[1]:.2f}]; chance has 0.01. The highest "
        f"AUC is {best.auc:.2f} ({best.name})."
    )
    last = report.rounds[-1]
    assert f"AUC of similarity 0.52 in round 4, {last.leakage['similarity']:.2f} in round 49" in (
        every["rounds"].alt()
    )


def test_alt__of_many_clients_and_of_a_sweep(run: Evaluation, report: Report) -> None:
    rows = [
        made_up_row(
            "client_cohorts", whose="cohort", attack="similarity", cohort=cohort, auc=auc, low=0.4,
            high=0.9, auc_ci=[0.4, 0.9], null_auc=0.5, null_ci=[0.4, 0.6], n_members=9,
        )
        for cohort, auc in (("never", 0.51), ("1-3", 0.58), ("4-6", 0.7))
    ]  # fmt: skip
    spread = made_up_row(
        "client_distribution", clients=200, over_half=3, under_half=0, with_null=200,
        over_null=9, over_null_expected=5.0, percentiles=[0.4 + i / 500 for i in range(101)],
        null_percentiles=[0.4 + i / 1000 for i in range(101)],
    )  # fmt: skip
    points = [
        SweepPoint(
            "similarity", "query_budget", value, 8, scored("similarity", auc, 112, 500, value)
        )
        for value, auc in ((8, 0.55), (1600, 0.7))
    ]
    sweep = build_report(replace(run, sweep=points)).sweep
    every = figures(replace(report, client_cohorts=rows, client_distribution=spread, sweep=sweep))
    for name in ("cohorts", "clients-distribution", "sweep"):
        assert every[name].draw() is not None and every[name].caption().endswith(".")
    assert every["cohorts"].alt() == (
        "AUC of similarity by the clients' last round. The highest is 0.70 (last round 4-6), the "
        "lowest of 3 0.51 (drawn in no round). 1 of 3 lie over the range of their null."
    )
    assert (
        every["clients-distribution"]
        .alt()
        .startswith("Histogram over clients. By client, AUC median 0.50, nine in ten 0.41 to 0.59")
    )
    first, second = (row.scored.auc for row in sweep if row.scored)
    assert every["sweep"].alt() == (
        f"AUC by query budget, images embedded: similarity {first:.2f} at 8, {second:.2f} at 1,600."
    )


def limits(figure: Figure) -> list[Line2D]:
    """The edges of the bands of a ROC plot."""
    return [line for line in figure.axes[0].lines if len(np.asarray(line.get_ydata())) == 40]


def test_roc__bands_of_subjects_are_wider(run: Evaluation, report: Report) -> None:
    n, m = 112, 500
    of: Any = {"subjects_members": np.arange(n) // 8, "subjects_nonmembers": np.arange(m) // 8}
    attack = run.attacks[1]
    numbers = np.round(attack.scores_members), np.round(attack.scores_nonmembers)
    same = np.repeat(numbers[0][::8], 8)[:n], np.repeat(numbers[1][::8], 8)[:m]
    alike = replace(attack, scores_members=same[0], scores_nonmembers=same[1])
    heights = []
    for one in (alike, replace(alike, **of)):
        whole = alone(run, one)
        curves = figures(build_report(whole), whole)["roc"]
        figure = curves.draw()
        assert figure is not None
        low, high = (line.get_ydata() for line in limits(figure))
        heights.append(np.asarray(high) - np.asarray(low))
    assert heights[1].sum() > 1.3 * heights[0].sum()
    assert "as many trials as the subjects' images are worth" in curves.caption()


def test_figures__edges_of_the_data(run: Evaluation) -> None:
    """One client, one round, equal scores, no known images: still drawn."""
    n, m = 112, 500
    flat = replace(
        run.attacks[0], name="ascent", act="ascent", scores_members=np.ones(n),
        scores_nonmembers=np.ones(m), known_members=np.zeros(0), known_nonmembers=np.zeros(0),
    )  # fmt: skip
    none, curves = replace(flat, name="x", scores_members=np.zeros(0)), run.curves
    assert curves is not None
    short = replace(
        curves, rounds=curves.rounds[:1], members=curves.members[:1],
        nonmembers=curves.nonmembers[:1], control_members=None, before_members=np.ones(3),
        after_members=np.ones(3), before_nonmembers=None,
    )  # fmt: skip
    odd = alone(
        run, flat, member_client=np.zeros(n, dtype=int), curves=short,
        clients=[ClientInfo(0, 16, "honest", None, tuple(range(40)))],
        rounds=[RoundRow(round=0, under_attack=True, loss=1.0)],
        leakage={0: {"ascent": flat, "x": none}}, layers={},
    )  # fmt: skip
    assert [*drawn(build_report(odd), odd)] == [
        "attacks", "roc", "clients", "holdings", "rounds", "ascent", "ascent-losses",
        "ascent-thresholds",
    ]  # fmt: skip


def test_act__names_its_figures_and_what_they_say(run: Evaluation) -> None:
    """Another active attack's figures are its own, in its own words; a passive attack has none."""
    assert run.curves is not None
    other = replace(
        run,
        curves=replace(run.curves, act="poison"),
        attacks=[replace(a, act=a.act and "poison") for a in run.attacks],
    )
    assert other.curves is not None
    shown = build_report(other)
    every = figures(shown, other)
    losses, acted = every["poison"].draw(), every["poison-losses"].draw()
    assert losses is not None and acted is not None
    titles = [axes.get_title(loc="left") for axes in losses.axes]
    assert titles == ["with poison", "without poison"]
    assert acted.get_suptitle() == "Loss before and after the local poison"
    names = [*drawn(shown, other)]
    assert names[-3:] == ["poison", "poison-losses", "poison-thresholds"]
    acts = [every[name] for name in names[-3:]]
    assert {one.place for one in acts} == {"Under poison"}
    assert not any("ascent" in one.caption() for one in acts)
    assert not any("ascent" in name for name in names)
    passive = replace(run, attacks=run.attacks[:3], pairs=[])
    assert not any("thresholds" in name for name in figures(build_report(passive), passive))


@pytest.mark.slow
def test_figures__leave_pyplots_backend_alone() -> None:
    # In Jupyter a run that had drawn its figures turned the notebook's own plots off.
    source = """if True:
        import matplotlib
        matplotlib.use("svg")
        from tests.report.conftest import make_run
        from fedmia.report.build import build_report
        from fedmia.report.figures.draw import figures
        figure = figures(build_report(make_run()))["attacks"].draw()
        assert figure._repr_png_()[1:4] == b"PNG"
        assert matplotlib.get_backend() == "svg", matplotlib.get_backend()
    """
    subprocess.run([sys.executable, "-c", source], check=True)
