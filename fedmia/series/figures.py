"""The curve of a series: what leaks and what use is left, from encoder to encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedmia.report.figures import canvas
from fedmia.report.rows import Interval
from fedmia.series.rows import SeriesPoint, SeriesReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6  # attacks that are drawn, the most leaking ones
APART = 0.008  # of the width, between two intervals at one place
Value = tuple[float, float | None, Interval | None]  # place, value, interval


@canvas.drawn
def draw(report: SeriesReport) -> Figure | None:
    """AUC of the attacks over kNN and linear probe, by round or by encoder; None without any."""
    points = [point for point in report["points"] if point["finished"]]
    names = _names(points)
    if not names:
        return None
    figure = canvas.new(8, 6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    lines = _lines(points)
    apart = APART * max(1.0, *(x for _, held in lines for x, _ in held))
    for j, (_, held) in enumerate(lines):
        dashes = {"linestyle": canvas.DASHES[j % len(canvas.DASHES)]}
        for i, name in enumerate(names):
            shift = apart * (i - (len(names) - 1) / 2)
            _attack(above, held, name, name if j == 0 else None, canvas.look(i) | dashes, shift)
        for i, (label, rows) in enumerate(_probes(held).items()):
            look = {"color": (canvas.INK, canvas.GREY)[i], "marker": "os"[i]} | dashes
            _line(below, rows, label if j == 0 else None, look, apart * (i - 0.5))
    if len(lines) > 1:  # their dashes tell the runs apart
        for j, (run, _) in enumerate(lines):
            look = {"color": canvas.GREY, "linestyle": canvas.DASHES[j % len(canvas.DASHES)]}
            below.plot([], [], **look, label=run)
    canvas.half_line(above)
    above.set_ylabel("AUC (0.5: nothing told)")
    below.set_ylabel("accuracy")
    _across(below, points)
    for axes in (above, below):
        axes.legend(loc="best", ncols=2)
    return figure


def _names(points: Sequence[SeriesPoint]) -> list[str]:
    """The attacks with the largest AUC on any encoder, the first leading."""
    best: dict[str, float] = {}
    for row in (row for point in points for row in point["attacks"]):
        best[row["name"]] = max(best.get(row["name"], 0.0), row["auc"] or 0.0)
    return sorted(best, key=lambda name: -best[name])[:MOST]


def _lines(points: Sequence[SeriesPoint]) -> list[tuple[str, list[tuple[float, SeriesPoint]]]]:
    """The places of what one line joins: the rounds of a run, or encoders that have none."""
    if any(point["round"] is None for point in points):
        return [("the encoders", [(float(i), point) for i, point in enumerate(points)])]
    found: dict[str, list[tuple[float, SeriesPoint]]] = {}
    for point in points:
        found.setdefault(point["run"], []).append((float(point["round"] or 0), point))
    return [(run, sorted(held, key=lambda at: at[0])) for run, held in found.items()]


def _attack(
    axes: Axes, held: Sequence[tuple[float, SeriesPoint]], name: str, label: str | None,
    look: dict[str, Any], shift: float,
) -> None:  # fmt: skip
    """Mean over seeds with its interval, and a dot a seed."""
    rows = [(x, row) for x, point in held for row in point["attacks"] if row["name"] == name]
    _line(axes, [(x, row["auc"], row["auc_ci"]) for x, row in rows], label, look, shift)
    dots = [(x + shift, auc) for x, row in rows for auc in row["by_seed"] if auc is not None]
    if len(dots) > len(rows):
        axes.plot(*zip(*dots, strict=True), ".", color=look["color"], markersize=4, alpha=0.5)


def _probes(held: Sequence[tuple[float, SeriesPoint]]) -> dict[str, list[Value]]:
    return {
        "weighted kNN": [(x, p["knn"], p["knn_ci"]) for x, p in held],
        "linear probe": [(x, p["linear"], p["linear_ci"]) for x, p in held],
    }


def _line(
    axes: Axes, rows: Sequence[Value], label: str | None, look: dict[str, Any], shift: float
) -> None:
    """Values with their intervals, moved aside by `shift` so that those of others are seen."""
    known = [(x + shift, value, ci) for x, value, ci in rows if value is not None]
    if not known:
        return
    xs, ys, _ = zip(*known, strict=True)
    axes.plot(xs, ys, **look, markersize=5, linewidth=1.4, label=label)
    for x, _, ci in known:
        if ci is not None:
            axes.plot([x, x], ci, color=look["color"], alpha=0.4, linewidth=2.5)


def _across(axes: Axes, points: Sequence[SeriesPoint]) -> None:
    """Rounds across, or the names of the encoders."""
    if all(point["round"] is not None for point in points):
        canvas.whole_rounds(axes)
        return
    axes.set_xticks(range(len(points)), [point["name"] for point in points])
    if len(points) > 3:
        axes.tick_params("x", labelrotation=20)
