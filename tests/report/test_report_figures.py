"""Figures: each is a PNG where there is data and absent where there is none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import ClientInfo, RoundInfo, RunScores
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.report.figures import active, attacks, canvas, rounds
from fedmia.report.figures import draw as draw_module
from fedmia.report.figures.draw import draw_all, figures, fingerprint
from tests.report.conftest import alone


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn and not written, which takes nine tenths of their time."""
    monkeypatch.setattr(canvas, "encode", lambda figure, kind, text=None: kind.encode())


def test_draw_all__every_figure_of_a_full_run(
    unwritten: None, run: RunScores, report: Report
) -> None:
    names = [
        "attacks", "roc", "clients", "rounds", "layers", "features", "ascent", "ascent-losses",
        "ascent-thresholds", "holdings",
    ]  # fmt: skip
    assert draw_all(run, report) == {
        f"{name}.{kind}": kind.encode() for name in names for kind in ("png", "pdf")
    }


def test_draw_all__the_same_bytes_twice(
    run: RunScores, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"layers": figures(run, report)["layers"]}
    monkeypatch.setattr(draw_module, "figures", lambda run, report: one)
    drawn, again = draw_all(run, report), figures(run, report)["layers"]()
    text = {"Report": fingerprint(report)}
    assert again is not None and canvas.encode(again, "png", text) == drawn["layers.png"]
    assert list(drawn) == ["layers.png", "layers.pdf"] and draw_all(run, report) == drawn
    assert drawn["layers.png"].startswith(b"\x89PNG\r\n\x1a\n") and len(drawn["layers.png"]) > 5000
    assert drawn["layers.pdf"].startswith(b"%PDF")


def test_fingerprint__is_of_all_but_the_timing(report: Report) -> None:
    assert fingerprint(report) == fingerprint({**report, "timing": {"total_s": 1.0}})
    assert fingerprint(report) != fingerprint({**report, "verdict": "another"})


def test_draw__one_figure_by_its_name(run: RunScores, report: Report) -> None:
    one = figures(run, report)["roc"]()
    assert one is not None and "ROC on log axes" in one.axes[0].get_title(loc="left")
    assert figures(run, report)["sweep"]() is None  # an audit's
    assert {"rounds", "features", "ascent-losses"} <= set(figures(run, report))


def test_draw_all__nothing_to_draw_draws_nothing(run: RunScores) -> None:
    bare = [replace(c, classes=()) for c in run.clients]
    empty = alone(run, pixels=None, curves=None, clients=bare, rounds=[])
    assert draw_all(empty, build_report(empty)) == {}


def test_draw__leaves_matplotlibs_settings_alone(run: RunScores, report: Report) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures(run, report)["layers"]()
    assert dict(matplotlib.rcParams) == before


def test_beside__finds_controls_and_the_paired_one(report: Report) -> None:
    controls = attacks.beside(report, "ascent")
    assert [label for label, _ in controls] == ["untrained", "placebo", "ascent-zero"]


@pytest.mark.slow
def test_figures__edges_of_the_data(run: RunScores) -> None:
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
        rounds=[RoundInfo(0, True, 1.0, None, {"ascent": flat, "x": none})],
    )  # fmt: skip
    assert list(draw_all(odd, build_report(odd)))[::2] == [
        "attacks.png", "roc.png", "clients.png", "rounds.png", "ascent.png", "ascent-losses.png",
        "ascent-thresholds.png", "holdings.png",
    ]  # fmt: skip


def test_act__names_its_figures_and_what_they_say(unwritten: None, run: RunScores) -> None:
    """Another active attack's figures are its own, in its own words; a passive attack has none."""
    assert run.curves is not None
    other = replace(
        run,
        curves=replace(run.curves, act="poison"),
        attacks=[replace(a, act=a.act and "poison") for a in run.attacks],
    )
    assert other.curves is not None
    shown = build_report(other)
    losses, acted = figures(other, shown)["poison"](), figures(other, shown)["poison-losses"]()
    assert losses is not None and acted is not None
    titles = [axes.get_title(loc="left") for axes in losses.axes]
    assert titles == ["with poison", "without poison"]
    assert acted.get_suptitle() == "Loss before and after the local poison"
    names = list(draw_all(other, build_report(other)))
    figures_drawn = [*dict.fromkeys(name.rpartition(".")[0] for name in names)]
    assert {name.rpartition(".")[2] for name in names} == {"png", "pdf"}
    assert figures_drawn[-4:] == ["poison", "poison-losses", "poison-thresholds", "holdings"]
    assert not any("ascent" in name for name in names)
    passive = replace(run, attacks=run.attacks[:3], pairs=[])
    assert active.thresholds(passive, build_report(passive), "ascent") is None
    assert not any("thresholds" in name for name in figures(passive, build_report(passive)))


def test_series__keeps_only_what_is_known(report: Report) -> None:
    held = report["rounds"]
    xs, ys = rounds.series(held, "leakage", "similarity")
    assert xs == list(range(4, 50, 5)) and ys[0] == pytest.approx(0.516)
    assert rounds.series(held, "leakage", "absent") == ([], [])


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
