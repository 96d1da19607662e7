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
    from matplotlib.text import Annotation

    from fedmia.study.result import StudyResult, Values

APART = 0.8  # of the room of a point, which its lines share
LINE, MARGIN = 0.14, 0.7  # inches: of a line of text; left of a plot
# Where the label of a point may stand, in points from it; each ring lies outside the last one.
PLACES = [(x, y) for ring in range(12) for x in (4, -18) for y in (4 + 9 * ring, -9 - 9 * ring)]
Lines = Mapping[str, Sequence[float]]  # name of a line -> its value of each model


def lines(study: StudyResult, values: Values) -> list[tuple[str, dict[str, list[float]]]]:
    """What `forest` draws of a study: each point with the values of its models; of one point, each
    line by itself.

    Args:
        study: whose points are named.
        values: point and name of a line -> value by seed.

    Returns:
        Name of each point with what is void of it, and its lines.
    """
    own = group_by_key((at, (name, known(v.values()))) for (at, name), v in values.items())
    if not study.place:
        return [
            ("\n".join(filter(None, [name, study.void(point)])), {"": numbers})
            for point, lines_of_point in own.items()
            for name, numbers in lines_of_point
        ]
    return [
        ("\n".join(filter(None, [*point.split(", "), study.void(point)])), dict(lines_of_point))
        for point, lines_of_point in own.items()
    ]


@canvas.apply_style
def forest(
    points: Sequence[tuple[str, Lines]], about: str, nothing: float, least: float = -1.0
) -> Figure | None:
    """Points from top to bottom, values across: the mean of each line with its interval between
    models, and a dot a model. The figure is as high as its labels and its legend need.

    Args:
        points: name of each, and its lines; a line without a name is in no legend.
        about: label of the horizontal axis.
        nothing: the value without any leakage, where a vertical line stands.
        least: the lower bound of the values, which cuts their intervals.

    Returns:
        The figure, None without any value.
    """
    names = list(dict.fromkeys(name for _, own in points for name, values in own.items() if values))
    if not names:
        return None
    step, labelled = APART / len(names), {""}
    figure, axes = canvas.one(canvas.COLUMN, _height(points, names))
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


def _height(points: Sequence[tuple[str, Lines]], names: Sequence[str]) -> float:
    """Inches of a forest: each point as high as its label and its lines, and the legend below."""
    label = max(name.count("\n") + 1 for name, _ in points)
    legend = LINE * len(names) if names != [""] else 0.0
    return 0.8 + legend + len(points) * max(0.2, LINE * label + 0.04, 0.12 * len(names))


def slanted(figure: Figure, axes: Axes, labels: Sequence[str]) -> None:
    """Labels below places 0, 1, ..: side by side where they fit, else upright, and the figure as
    wide as they need.

    Args:
        figure: with the plot.
        axes: whose horizontal axis has the places.
        labels: one a place.
    """
    rows = [line for label in labels for line in label.split("\n")]
    room = (figure.get_figwidth() - MARGIN) / len(labels)
    upright = canvas.LETTER * (max(map(len, rows)) + 1) > room
    axes.set_xticks(range(len(labels)), labels, rotation=90 if upright else 0)
    if upright:
        high = LINE * (max(label.count("\n") for label in labels) + 1)
        figure.set_figwidth(max(figure.get_figwidth(), MARGIN + (high + 0.04) * len(labels)))
        figure.set_figheight(figure.get_figheight() + canvas.LETTER * max(map(len, rows)))


def spread_labels(figure: Figure, texts: Sequence[Annotation]) -> None:
    """Move labels of points off one another: each to the first place around its point that no
    label before it takes.

    Args:
        figure: in which they stand.
        texts: offset in points from what they label.
    """
    figure.draw_without_rendering()
    before: list[Any] = []
    for text in texts:
        for place in PLACES:
            text.set_position(place)
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in before):
                break
        before.append(box)


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
