"""Figures: each is a PNG where there is data and absent where there is none."""

from __future__ import annotations

import html
import io
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

from fedmia.records import ClientInfo, Evaluation, SweepPoint
from fedmia.records.client_rows import ClientDistribution, CohortRow
from fedmia.records.fields import row_of
from fedmia.records.rows import Report, RoundRow
from fedmia.report.build import build_report
from fedmia.report.figures import attacks, canvas, rounds
from fedmia.report.figures import draw as draw_module
from fedmia.report.figures.active import AccuracyByThreshold
from fedmia.report.figures.draw import draw_all, figures, fingerprint
from fedmia.report.page import page
from tests.report.conftest import Page, alone, scored


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn and not written, which takes nine tenths of their time."""
    monkeypatch.setattr(canvas, "encode", lambda figure, kind, text=None: kind.encode())


def test_draw_all__every_figure_of_a_full_run(
    unwritten: None, run: Evaluation, report: Report
) -> None:
    names = [
        "attacks", "roc", "features", "clients", "holdings", "rounds", "layers", "ascent",
        "ascent-losses", "ascent-thresholds",
    ]  # fmt: skip
    assert draw_all(run, report) == {
        f"{name}.{kind}": kind.encode() for name in names for kind in ("png", "pdf")
    }


def test_draw_all__the_same_bytes_twice(
    run: Evaluation, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = figures(report)["layers"]
    monkeypatch.setattr(draw_module, "figures", lambda report, run: {"layers": layers})
    drawn, again = draw_all(run, report), figures(report)["layers"].draw()
    text = {"Report": fingerprint(report), "Description": layers.alt()}
    assert again is not None and canvas.encode(again, "png", text) == drawn["layers.png"]
    assert list(drawn) == ["layers.png", "layers.pdf"] and draw_all(run, report) == drawn
    assert drawn["layers.png"].startswith(b"\x89PNG\r\n\x1a\n") and len(drawn["layers.png"]) > 5000
    assert drawn["layers.pdf"].startswith(b"%PDF")
    with Image.open(io.BytesIO(drawn["layers.png"])) as png:
        assert png.info["Description"] == layers.alt() and png.info["Report"] == text["Report"]
    assert b"/Subject (AUC by layer and round" in drawn["layers.pdf"]


def test_fingerprint__is_of_all_but_the_timing(report: Report) -> None:
    assert fingerprint(report) == fingerprint(replace(report, timing={"total_s": 1.0}))
    assert fingerprint(report) != fingerprint(replace(report, verdict="another"))


def test_draw__one_figure_by_its_name(run: Evaluation, report: Report) -> None:
    one = figures(report, run)["roc"].draw()
    assert one is not None and "ROC on log axes" in one.axes[0].get_title(loc="left")
    assert figures(report)["sweep"].draw() is None  # an audit's
    assert {"rounds", "features", "ascent-losses"} <= set(figures(report, run))
    assert "roc" not in figures(report)  # its rows hold no scores


def test_draw_all__nothing_to_draw_draws_nothing(run: Evaluation) -> None:
    bare = [replace(c, classes=()) for c in run.clients]
    empty = alone(run, pixels=None, curves=None, clients=bare, rounds=[])
    assert draw_all(empty, build_report(empty)) == {}


def test_draw__leaves_matplotlibs_settings_alone(run: Evaluation, report: Report) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures(report)["layers"].draw()
    assert dict(matplotlib.rcParams) == before


def test_beside__finds_controls_and_the_paired_one(report: Report) -> None:
    controls = attacks.beside(report, "ascent")
    assert [label for label, _ in controls] == ["untrained", "placebo", "ascent-zero"]


def test_page__each_figure_has_its_caption_its_text_and_its_place(
    run: Evaluation, report: Report
) -> None:
    every = figures(report, run)
    drawn = {name: one for name, one in every.items() if one.draw() is not None}
    texts = {name: (one.caption(), one.alt()) for name, one in drawn.items()}
    for name, (caption, alt) in texts.items():
        assert caption.endswith(".") and alt.endswith(".") and alt != caption, name
        assert re.search(r"\d", alt), f"{name} has no number: {alt}"
    text = page(report, dict.fromkeys(drawn, b"x"), run)
    document = Page(text)
    assert len(document.loads) == len(drawn) == 10 and "Other figures" not in text
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
        row_of(
            CohortRow, None, whose="cohort", attack="similarity", cohort=cohort, auc=auc, low=0.4,
            high=0.9, auc_ci=(0.4, 0.9), null_auc=0.5, null_ci=(0.4, 0.6), n_members=9,
        )
        for cohort, auc in (("never", 0.51), ("1-3", 0.58), ("4-6", 0.7))
    ]  # fmt: skip
    spread = row_of(
        ClientDistribution, None, clients=200, over_half=3, under_half=0, with_null=200,
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


def test_new_figure__stands_in_a_section_of_its_own(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure is declared in one class: the page needs no word of it."""

    class New(attacks.Forest):
        name, place = "new", "A new section"

    monkeypatch.setattr("fedmia.report.page.figures", lambda report, run: {"new": New(report)})
    text = page(report, {"new": b"x"})
    assert "<h2>A new section</h2>" in text and "AUC of 4 attacks" in text


def limits(figure: Figure) -> list[Line2D]:
    """The edges of the bands of a ROC plot."""
    return [line for line in figure.axes[0].lines if len(np.asarray(line.get_ydata())) == 40]


def test_roc__bands_of_the_attacks_with_the_highest_auc(run: Evaluation, report: Report) -> None:
    one = figures(report, run)["roc"]
    figure = one.draw()
    assert figure is not None
    (axes,) = figure.axes
    aucs = {row.name: row.auc or 0.0 for row in report.attacks}
    banded = sorted(aucs, key=lambda name: -aucs[name])[:2]
    assert len(axes.collections) == 2 < len(aucs)
    note = axes.get_xlabel()
    for words in (*banded, "pointwise 95 %", "Clopper-Pearson"):
        assert words in note
    assert "Band of the 2 attacks with the highest AUC: pointwise 95 %" in one.caption()
    assert "trials" not in one.caption()
    colours = {str(line.get_color()) for line in axes.lines if line.get_label() in banded}
    assert {str(line.get_color()) for line in limits(figure)} == colours
    assert len(limits(figure)) == 4


def test_roc__each_attack_has_a_band_where_there_are_few(run: Evaluation) -> None:
    few = alone(run, *run.attacks[:2])
    one = figures(build_report(few), few)["roc"]
    figure = one.draw()
    assert figure is not None and len(figure.axes[0].collections) == 2
    assert "Band of each attack: pointwise" in one.caption()


MOST = 7  # curves that a reader tells apart


def test_roc__of_many_attacks_the_most_leaking_are_drawn(run: Evaluation) -> None:
    aucs = [0.55 + 0.03 * i for i in range(MOST + 2)]
    many = alone(run, *(scored(f"a{i}", auc, 112, 500, i) for i, auc in enumerate(aucs)))
    one = figures(build_report(many), many)["roc"]
    figure = one.draw()
    assert figure is not None
    names = {str(line.get_label()) for line in figure.axes[0].lines}
    assert {n for n in names if n.startswith("a")} == {f"a{i}" for i in range(2, MOST + 2)}
    assert f"the {MOST} attacks with the highest AUC" in one.caption()


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


@pytest.mark.slow
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
    assert list(draw_all(odd, build_report(odd)))[::2] == [
        "attacks.png", "roc.png", "clients.png", "holdings.png", "rounds.png", "ascent.png",
        "ascent-losses.png", "ascent-thresholds.png",
    ]  # fmt: skip


def test_act__names_its_figures_and_what_they_say(unwritten: None, run: Evaluation) -> None:
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
    names = list(draw_all(other, build_report(other)))
    figures_drawn = [*dict.fromkeys(name.rpartition(".")[0] for name in names)]
    assert {name.rpartition(".")[2] for name in names} == {"png", "pdf"}
    assert figures_drawn[-3:] == ["poison", "poison-losses", "poison-thresholds"]
    acts = [every[name] for name in figures_drawn[-3:]]
    assert {one.place for one in acts} == {"Under poison"}
    assert not any("ascent" in one.caption() for one in acts)
    assert not any("ascent" in name for name in names)
    passive = replace(run, attacks=run.attacks[:3], pairs=[])
    assert AccuracyByThreshold(build_report(passive), passive, "ascent").draw() is None
    assert not any("thresholds" in name for name in figures(build_report(passive), passive))


def test_series__keeps_only_what_is_known(report: Report) -> None:
    xs, ys = rounds.series(report.rounds, "leakage", "similarity")
    assert xs == list(range(4, 50, 5)) and ys[0] == pytest.approx(0.516)
    assert rounds.series(report.rounds, "leakage", "absent") == ([], [])


def test_look__of_two_lines_is_never_the_same() -> None:
    looks = {(one["color"], one["marker"]) for one in map(canvas.look, range(49))}
    assert len(looks) == 49


@pytest.mark.slow
def test_figures__leave_pyplots_backend_alone() -> None:
    # In Jupyter a run that had drawn its figures turned the notebook's own plots off.
    source = """if True:
        import matplotlib
        matplotlib.use("svg")
        from fedmia.report.figures.canvas import apply_style, new_figure
        figure = apply_style(new_figure)(3, 2)
        figure.subplots().plot([1, 2])
        assert figure._repr_png_()[1:4] == b"PNG"
        assert matplotlib.get_backend() == "svg", matplotlib.get_backend()
    """
    subprocess.run([sys.executable, "-c", source], check=True)
