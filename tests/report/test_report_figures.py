"""Figures: each is a PNG where there is data and absent where there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedmia.records import ClientInfo, RoundInfo, RunScores, ScoredAttack
from fedmia.report.build import build_report
from fedmia.report.figures import active, attacks, canvas, clients, rounds
from fedmia.report.figures import draw as draw_module
from fedmia.report.figures.draw import draw, draw_all, figures

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_draw_all__every_figure_of_a_full_run(run: RunScores) -> None:
    figures = draw_all(run, build_report(run))
    assert list(figures) == [
        "attacks",
        "roc",
        "clients",
        "rounds",
        "layers",
        "features",
        "ascent",
        "ascent-losses",
        "ascent-thresholds",
        "holdings",
    ]
    assert all(data.startswith(PNG) and len(data) > 5000 for data in figures.values())


def test_draw_all__the_same_bytes_twice(run: RunScores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two figures: the others are not drawn here."""
    report = build_report(run)
    two = {name: figures(run, report)[name] for name in ("attacks", "holdings")}
    monkeypatch.setattr(draw_module, "figures", lambda run, report: two)
    drawn = draw_all(run, report)
    forest, holdings = attacks.forest(report), clients.holdings(report)
    assert forest is not None and holdings is not None
    assert canvas.png(forest) == drawn["attacks"]
    assert canvas.png(holdings) == drawn["holdings"]


def test_draw__one_figure_by_its_name(run: RunScores) -> None:
    report = build_report(run)
    one = draw("roc", run, report)
    assert one is not None and "ROC on log axes" in one.axes[0].get_title(loc="left")
    assert draw("sweep", run, report) is None  # an audit's
    assert {"rounds", "features", "ascent-losses"} <= set(figures(run, report))
    with pytest.raises(KeyError, match="poison"):
        draw("poison", run, report)


def test_draw_all__nothing_to_draw_draws_nothing(run: RunScores) -> None:
    bare = [replace(c, classes=()) for c in run.clients]
    empty = replace(
        run,
        attacks=[],
        controls={},
        pairs=[],
        pixels=None,
        curves=None,
        clients=bare,
        rounds=[],
    )
    assert draw_all(empty, build_report(empty)) == {}


def test_draw_all__leaves_matplotlibs_settings_alone(run: RunScores) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    rounds.layers(build_report(run))
    assert dict(matplotlib.rcParams) == before


def test_beside__finds_controls_and_the_paired_one(run: RunScores) -> None:
    controls = attacks.beside(build_report(run), "ascent")
    assert [label for label, _ in controls] == ["untrained", "placebo", "ascent-zero"]


@pytest.mark.slow
def test_figures__edges_of_the_data(run: RunScores, scored: Callable[..., ScoredAttack]) -> None:
    """One client, one round, equal scores, no known images: still drawn."""
    n, m = 112, 500
    flat = replace(
        run.attacks[0],
        name="ascent",
        scores_members=np.ones(n),
        scores_nonmembers=np.ones(m),
        known_members=np.zeros(0),
        known_nonmembers=np.zeros(0),
        act="ascent",
    )
    none = replace(flat, name="x", scores_members=np.zeros(0))
    curves = run.curves
    assert curves is not None
    odd = replace(
        run,
        attacks=[flat],
        controls={},
        pairs=[],
        member_client=np.zeros(n, dtype=int),
        clients=[ClientInfo(0, 16, "honest", None, tuple(range(40)))],
        rounds=[RoundInfo(0, True, 1.0, None, {"ascent": flat, "x": none})],
        curves=replace(
            curves,
            rounds=curves.rounds[:1],
            members=curves.members[:1],
            nonmembers=curves.nonmembers[:1],
            control_members=None,
            before_members=np.ones(3),
            after_members=np.ones(3),
            before_nonmembers=None,
        ),
    )
    names = set(draw_all(odd, build_report(odd)))
    assert {"attacks", "roc", "clients", "rounds", "holdings"} <= names
    assert {"ascent", "ascent-losses", "ascent-thresholds"} <= names
    assert "features" not in names and "layers" not in names


@pytest.mark.slow
def test_ascent_thresholds__only_for_ascent_attacks(run: RunScores) -> None:
    passive = replace(run, attacks=run.attacks[:3], pairs=[])
    assert active.thresholds(passive, build_report(passive), "ascent") is None
    assert not any("thresholds" in name for name in draw_all(passive, build_report(passive)))


@pytest.mark.slow
def test_act__names_its_figures_and_what_they_say(
    run: RunScores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another active attack's figures are its own, in its own words."""
    assert run.curves is not None
    other = replace(
        run,
        curves=replace(run.curves, act="poison"),
        attacks=[replace(a, act=a.act and "poison") for a in run.attacks],
    )
    monkeypatch.setattr(canvas, "png", lambda figure: b"png")
    assert other.curves is not None
    losses, acted = active.by_round(other), active.distributions(other.curves)
    assert losses is not None and acted is not None
    assert [axes.get_title(loc="left") for axes in losses.axes] == [
        "with poison",
        "without poison",
    ]
    assert acted.get_suptitle() == "Loss before and after the local poison"
    names = list(draw_all(other, build_report(other)))
    assert names[-4:] == ["poison", "poison-losses", "poison-thresholds", "holdings"]
    assert not any("ascent" in name for name in names)


def test_series__keeps_only_what_is_known(run: RunScores) -> None:
    held = build_report(run)["rounds"]
    xs, ys = rounds.series(held, "leakage", "similarity")
    assert xs == list(range(4, 50, 5)) and ys[0] == pytest.approx(0.516)
    assert rounds.series(held, "leakage", "absent") == ([], [])


def test_look__of_two_lines_is_never_the_same() -> None:
    looks = {(one["color"], one["marker"]) for one in map(active.canvas.look, range(49))}
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
