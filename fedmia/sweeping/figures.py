"""Figures of a sweep: each point's mean with its interval between models, and a dot a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from fedmia.config.sweep import label
from fedmia.report.figures import canvas
from fedmia.report.rows import Interval
from fedmia.statistics.spread import spread
from fedmia.sweeping.points import grouped
from fedmia.sweeping.rows import CellResults, CellRow, SweepReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

APART = 0.8  # of the room of a point, which its lines share
Values = Callable[[CellResults], dict[str, float | None]]


@dataclass(frozen=True)
class Line:
    """One name at one point: its values by seed, their mean and its interval."""

    name: str
    values: Sequence[float]
    mean: float
    ci: Interval | None


def draw(report: SweepReport) -> dict[str, bytes]:
    """Name -> PNG of every figure that the sweep has data for."""
    cells = report["cells"]
    drawn = {
        "attacks": _forest(cells, _aucs, "AUC (0.5: nothing told)", 0.5, 0.0),
        "pairs": _forest(cells, _differences, "AUC less that of the paired control", 0.0, -1.0),
    }
    return {name: data for name, data in drawn.items() if data is not None}


def _aucs(results: CellResults) -> dict[str, float | None]:
    return {row["name"]: row["auc"] for row in results["attacks"]}


def _differences(results: CellResults) -> dict[str, float | None]:
    return {f"{r['attack']} less {r['control']}": r["difference"] for r in results["pairs"]}


@canvas.drawn
def _forest(
    cells: Sequence[CellRow], values: Values, about: str, nothing: float, least: float
) -> Figure | None:
    """Points from top to bottom, values across, a dot a model.

    Args:
        nothing: the value where nothing is told.
        least: that a value can be.
    """
    points = [(held[0]["grid"], _lines(held, values, least)) for held in grouped(cells).values()]
    names = list(dict.fromkeys(line.name for _, lines in points for line in lines))
    if not names:
        return None
    step, seen = APART / len(names), set[str]()
    figure, axes = canvas.one(8.5, 1.6 + len(points) * max(0.5, 0.17 * len(names)))
    for place, (_, lines) in enumerate(points):
        for line in lines:
            i = names.index(line.name)
            height = place - APART / 2 + (i + 0.5) * step
            look = canvas.look(i)
            own = {"color": look["color"], "linestyle": ""}
            if line.ci:
                axes.plot(line.ci, [height] * 2, color=look["color"], linewidth=3, alpha=0.4)
            axes.plot(line.values, [height] * len(line.values), **own, marker=".", markersize=6)
            named = line.name if line.name not in seen else None
            axes.plot(
                [line.mean], [height], **own, marker=look["marker"], markersize=8,
                markerfacecolor="none", label=named,
            )  # fmt: skip
            seen.add(line.name)
        if place:
            axes.axhline(place - 0.5, color="#e3e3e3", linewidth=0.8)
    axes.axvline(nothing, color=canvas.GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    said = [label(grid).replace(", ", "\n") or "the experiment" for grid, _ in points]
    axes.set_yticks(range(len(points)), said)
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.set_xlabel(about)
    canvas.legend(axes)
    return figure


def _lines(cells: Sequence[CellRow], values: Values, least: float) -> list[Line]:
    found: dict[str, list[float]] = {}
    for held in (values(cell["results"]) for cell in cells if cell["results"] is not None):
        for name, value in held.items():
            if value is not None:
                found.setdefault(name, []).append(value)
    return [Line(n, held, fmean(held), spread(held, least)["ci"]) for n, held in found.items()]
