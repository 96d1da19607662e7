"""The figures that studies share: points with a dot a model, lines with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedmia.records.attack_rows import Interval
from fedmia.report.figures import canvas
from fedmia.statistics.spread import spread
from fedmia.study.points import group_by_key, known

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedmia.study.result import StudyResult, Values

APART = 0.8  # of the room of a point, which its lines share
Lines = Mapping[str, Sequence[float]]  # name of a line -> its value of each model


def lines(study: StudyResult, values: Values) -> list[tuple[str, dict[str, list[float]]]]:
    """What `forest` draws of a study: each point with the values of its models.

    Args:
        study: whose points are named.
        values: point and name of a line -> value by seed.

    Returns:
        Name of each point with what is void of it, and its lines.
    """
    own = group_by_key((at, (name, known(v.values()))) for (at, name), v in values.items())
    return [
        ("\n".join(filter(None, [*study.name(point).split(", "), study.void(point)])), dict(lines))
        for point, lines in own.items()
    ]


@canvas.apply_style
def forest(
    points: Sequence[tuple[str, Lines]], about: str, nothing: float, least: float = -1.0
) -> Figure | None:
    """Points from top to bottom, values across: the mean of each line with its interval between
    models, and a dot a model.

    Args:
        points: name of each, and its lines.
        about: label of the horizontal axis.
        nothing: the value without any leakage, where a vertical line stands.
        least: the lower bound of the values, which cuts their intervals.

    Returns:
        The figure, None without any value.
    """
    names = list(dict.fromkeys(name for _, own in points for name, values in own.items() if values))
    if not names:
        return None
    step, labelled = APART / len(names), set[str]()
    figure, axes = canvas.one(canvas.COLUMN, 1.1 + len(points) * max(0.3, 0.12 * len(names)))
    for place, (_, own) in enumerate(points):
        for name, values in own.items():
            if not values:
                continue
            i = names.index(name)
            height = place - APART / 2 + (i + 0.5) * step
            look = canvas.look(i)
            dots = {"color": look["color"], "linestyle": ""}
            if ci := spread(values, least)["ci"]:
                axes.plot(ci, [height] * 2, color=look["color"], linewidth=3, alpha=0.4)
            axes.plot(values, [height] * len(values), **dots, marker=".", markersize=3)
            axes.plot(
                [fmean(values)],
                [height],
                **dots,
                marker=look["marker"],
                markersize=5,
                markerfacecolor="none",
                label=None if name in labelled else name,
            )
            labelled.add(name)
        if place:
            axes.axhline(place - 0.5, color="#e3e3e3", linewidth=0.8)
    axes.axvline(nothing, color=canvas.GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    axes.set_yticks(range(len(points)), [name for name, _ in points])
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.set_xlabel(about)
    canvas.legend(axes)
    return figure


def cross(
    axes: Axes,
    at: tuple[float, float],
    across: Interval | None,
    up: Interval | None,
    **look: Any,
) -> None:
    """The intervals of a point, across and upwards, as bars.

    Args:
        axes: to draw on.
        at: the point (x, y).
        across: interval of x; None for none.
        up: interval of y; None for none.
        look: colour and width.
    """
    if across is not None:
        axes.plot(across, [at[1]] * 2, **look)
    if up is not None:
        axes.plot([at[0]] * 2, up, **look)
