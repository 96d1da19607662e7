"""Figs. 1 and 2 of Yang et al. (2022): utility loss and attack accuracy by epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedmia.heads.rows import HeadReport, HeadRow
from fedmia.heads.trial import KNOWING, NAIVE
from fedmia.records import MEANINGFUL
from fedmia.report.figures import canvas
from fedmia.sweeping.rows import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDES = (NAIVE, KNOWING)
Points = Sequence[tuple[float, Spread]]


def draw(report: HeadReport) -> dict[str, bytes]:
    """Name -> PNG."""
    drawn = {"fig-1": utility(report), "fig-2": protection(report)}
    return {name: data for name, data in drawn.items() if data is not None}


@canvas.drawn
def utility(report: HeadReport) -> Figure | None:
    """Fig. 1: utility loss at each epsilon, mean over heads with its 95 % band."""
    figure, axes = canvas.one(6.6, 4.3)
    for i, (name, rows) in enumerate(_mechanisms(report)):
        _line(axes, i, name, [(r["epsilon"] or 0.0, r["utility_loss"]) for r in rows])
    axes.axhline(0, color=canvas.GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    _epsilons(axes, report)
    axes.set_ylabel("utility loss")
    axes.set_title(f"Utility loss by privacy budget ({report['heads']} heads)")
    canvas.legend(axes, 4)
    return figure


@canvas.drawn
def protection(report: HeadReport) -> Figure | None:
    """Fig. 2: accuracy of the attack at each epsilon (top) and at each utility loss (bottom), of
    the paper's attacker and of one that noises its shadows as the release is noised."""
    figure = canvas.new(9.6, 7.4)
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


def _mechanisms(report: HeadReport) -> Sequence[tuple[str, Sequence[HeadRow]]]:
    """Rows of each mechanism, by rising epsilon."""
    noised = sorted(report["rows"][1:], key=lambda r: r["epsilon"] or 0.0)
    names = dict.fromkeys(str(r["mechanism"]) for r in report["rows"][1:])
    return [(name, [r for r in noised if r["mechanism"] == name]) for name in names]


def _accuracy(row: HeadRow, attack: str) -> Spread:
    return next(a["accuracy"] for a in row["attacks"] if a["name"] == attack)


def _line(axes: Axes, i: int, name: str, points: Points) -> None:
    """Means, with their 95 % band."""
    look = canvas.look(i)
    xs, means = [x for x, _ in points], [s["mean"] for _, s in points]
    low, high = zip(*(s["ci"] or (s["mean"], s["mean"]) for _, s in points), strict=True)
    axes.fill_between(xs, low, high, color=look["color"], alpha=0.15, linewidth=0)  # type: ignore[arg-type]
    axes.plot(xs, means, **look, markersize=5, linewidth=1.6, label=name)  # type: ignore[arg-type]


def _cloud(axes: Axes, i: int, rows: Sequence[HeadRow], attack: str) -> None:
    """Utility loss across, accuracy upwards, both with their 95 % intervals; joined by epsilon."""
    look, across, up = canvas.look(i), [], []
    for row in rows:
        loss, right = row["utility_loss"], _accuracy(row, attack)
        across.append(loss["mean"])
        up.append(right["mean"])
        for spread, ends in ((loss, lambda ci, at: (ci, (at, at))),
                             (right, lambda ci, at: ((at, at), ci))):  # fmt: skip
            other = right["mean"] if spread is loss else loss["mean"]
            if spread["ci"] is not None:
                axes.plot(*ends(spread["ci"], other), color=look["color"], alpha=0.35, linewidth=2)
    axes.plot(across, up, **look, markersize=5, linewidth=1.2)  # type: ignore[arg-type]


def _epsilons(axes: Axes, report: HeadReport) -> None:
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
