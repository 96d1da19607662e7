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
    for j, (run, held) in enumerate(lines):
        dashes = canvas.DASHES[j % len(canvas.DASHES)]
        for i, name in enumerate(names):
            look = canvas.look(i) | {"linestyle": dashes}
            _attack(above, held, name, name if j == 0 else None, look)
        said = f" of {run}" if len(lines) > 1 else ""
        for i, (label, rows) in enumerate(_probes(held).items()):
            look = {"color": (canvas.INK, canvas.GREY)[i], "marker": "os"[i], "linestyle": dashes}
            _line(below, rows, label + said, look)
    canvas.half_line(above)
    above.set_ylabel("AUC (0.5: nothing told)")
    below.set_ylabel("accuracy")
    _across(below, points)
    canvas.legend(above)
    canvas.legend(below)
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
    look: dict[str, Any],
) -> None:  # fmt: skip
    """Mean over seeds with its interval, and a dot a seed."""
    rows = [(x, row) for x, point in held for row in point["attacks"] if row["name"] == name]
    _line(axes, [(x, row["auc"], row["auc_ci"]) for x, row in rows], label, look)
    dots = [(x, auc) for x, row in rows if len(row["by_seed"]) > 1 for auc in row["by_seed"]]
    known = [(x, auc) for x, auc in dots if auc is not None]
    if known:
        axes.plot(*zip(*known, strict=True), ".", color=look["color"], markersize=4, alpha=0.5)


def _probes(held: Sequence[tuple[float, SeriesPoint]]) -> dict[str, list[Value]]:
    return {
        "weighted kNN": [(x, p["knn"], p["knn_ci"]) for x, p in held],
        "linear probe": [(x, p["linear"], p["linear_ci"]) for x, p in held],
    }


def _line(axes: Axes, rows: Sequence[Value], label: str | None, look: dict[str, Any]) -> None:
    known = [(x, value, ci) for x, value, ci in rows if value is not None]
    if not known:
        return
    xs, ys, _ = zip(*known, strict=True)
    axes.plot(xs, ys, **look, markersize=5, linewidth=1.4, label=label)
    ends = [(x, *ci) for x, _, ci in known if ci is not None]
    if ends:
        at, low, high = zip(*ends, strict=True)
        if len(ends) > 1:
            axes.fill_between(at, low, high, color=look["color"], alpha=0.12, linewidth=0)
        axes.vlines(at, low, high, color=look["color"], alpha=0.4, linewidth=1.5)


def _across(axes: Axes, points: Sequence[SeriesPoint]) -> None:
    """Rounds across, or the names of the encoders."""
    if all(point["round"] is not None for point in points):
        canvas.whole_rounds(axes)
        return
    axes.set_xticks(range(len(points)), [point["name"] for point in points])
    if len(points) > 3:
        axes.tick_params("x", labelrotation=20)
