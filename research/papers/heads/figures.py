"""Figs. 1 and 2 of Yang et al. (2022): what noise costs, and what it stops, by epsilon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fedmia.records.privacy import MEANINGFUL
from fedmia.report.figures import canvas
from fedmia.study.drawing import cross
from research.papers.cells import Row, Rows
from research.papers.drawing import band
from research.papers.heads.sentence import by_mechanism
from research.papers.heads.trial import KNOWING, NAIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDES = (NAIVE, KNOWING)


@canvas.drawn
def utility(report: Row) -> Figure | None:
    """Fig. 1: utility loss at each epsilon, mean over heads with its 95 % band."""
    figure, axes = canvas.one(canvas.COLUMN, 2.9)
    for i, (name, rows) in enumerate(_mechanisms(report)):
        _line(axes, i, name, [(r["epsilon"] or 0.0, r["utility_loss"]) for r in rows])
    axes.axhline(0, color=canvas.GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    _epsilons(axes, report)
    axes.set_ylabel("utility loss")
    axes.set_title(f"Utility loss by privacy budget ({report['heads']} heads)")
    canvas.legend(axes, 4)
    return figure


@canvas.drawn
def protection(report: Row) -> Figure | None:
    """Fig. 2: accuracy of the attack at each epsilon (top) and at each utility loss (bottom), of
    the paper's attacker and of one that noises its shadows as the release is noised."""
    figure = canvas.new_figure(canvas.WIDE, 5.2)
    grid: Any = figure.subplots(2, 2, sharey=True)
    plain = report["rows"][0]["attacks"][0]["accuracy"]
    for axes, attack in zip(grid[0], SIDES, strict=True):
        for i, (name, rows) in enumerate(_mechanisms(report)):
            _line(axes, i, name, [(r["epsilon"] or 0.0, _accuracy(r, attack)) for r in rows])
        _epsilons(axes, report)
        axes.set_title(attack)
    for axes, attack in zip(grid[1], SIDES, strict=True):
        for i, (_, rows) in enumerate(_mechanisms(report)):
            _cloud(axes, i, rows, attack)
        axes.set_xlabel("utility loss")
        axes.grid(axis="both")
    for axes in grid.flat:
        canvas.half_line(axes)
        if plain["mean"] is not None:
            axes.axhline(plain["mean"], color=canvas.INK, linewidth=1, zorder=0, label="no noise")
    for axes in grid[:, 0]:
        axes.set_ylabel("attack's accuracy")
    canvas.legend(grid[0][0], 5)
    return figure


def _mechanisms(report: Row) -> Iterable[tuple[str, Rows]]:
    """Rows of each mechanism, by rising epsilon."""
    for name, rows in by_mechanism(report["rows"][1:]).items():
        yield name, sorted(rows, key=lambda r: r["epsilon"] or 0.0)


def _accuracy(row: Row, attack: str) -> Row:
    accuracy: Row = next(a["accuracy"] for a in row["attacks"] if a["name"] == attack)
    return accuracy


def _line(axes: Axes, i: int, name: str, points: Iterable[tuple[float, Row]]) -> None:
    """Means, with their 95 % band."""
    known = ((x, spread["mean"], spread["ci"]) for x, spread in points)
    band(axes, known, canvas.look(i), 0.15, linewidth=1.6, label=name)


def _cloud(axes: Axes, i: int, rows: Rows, attack: str) -> None:
    """Utility loss across, accuracy upwards, both with their 95 % intervals; joined by epsilon."""
    look, pairs = canvas.look(i), [(r["utility_loss"], _accuracy(r, attack)) for r in rows]
    places: list[Any] = [(loss["mean"], right["mean"]) for loss, right in pairs]
    for at, (loss, right) in zip(places, pairs, strict=True):
        cross(axes, at, loss["ci"], right["ci"], color=look["color"], alpha=0.35, linewidth=2)
    axes.plot(*zip(*places, strict=True), **look)


def _epsilons(axes: Axes, report: Row) -> None:
    """Epsilon across on a log scale; where it means nothing, grey."""
    axes.set_xscale("log")
    most = max(r["epsilon"] or 0.0 for r in report["rows"][1:])
    if most > MEANINGFUL:
        axes.axvspan(
            MEANINGFUL, most * 1.15, color=canvas.GREY, alpha=0.12, linewidth=0, zorder=0,
            label="no meaningful guarantee",
        )  # fmt: skip
    axes.grid(axis="y")
    axes.set_xlabel("epsilon")
