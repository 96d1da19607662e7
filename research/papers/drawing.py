"""The figure of an entry: its columns over its rows, ours with intervals, theirs beside."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.records.attack_rows import Interval
from fedmia.report.figures import canvas
from research.papers.cells import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MADE_UP = "Smoke: made-up images. Our numbers here mean nothing."
BAND = 32  # pixels above a picture that this line takes
LONGEST = 5  # letters of a label that stands upright beside others


@canvas.drawn
def draw(title: str, rows: Rows, kind: str) -> Figure | None:
    """The numbers of one entry, a plot a level of leak.

    Args:
        title: of the figure.
        rows: of its table.
        kind: `lines` (rows are values of one quantity), `bars`, or `plane` (a point a row, the
            first column across, the others upwards).

    Returns:
        The figure as PNG bytes, None where no number is known.
    """
    known = [row for row in rows if row["ours"] is not None]
    levels = list(dict.fromkeys(row["level"] for row in known))
    if not levels:
        return None
    figure = canvas.new_figure(canvas.WIDE, 2.9)
    for place, level in enumerate(levels):
        axes = figure.add_subplot(1, len(levels), place + 1)
        plot = _plane if kind == "plane" else _plot
        plot(axes, [row for row in known if row["level"] == level], kind)
        axes.set_title(level or title)
        canvas.legend(axes)
    if levels != [""]:
        figure.suptitle(title)
    return figure


def band(
    axes: Axes,
    points: Iterable[tuple[float, float | None, Interval | None]],
    look: Mapping[str, Any],
    alpha: float,
    **more: Any,
) -> None:
    """A line in its band, without values that are not known.

    Args:
        axes: to draw on.
        points: across, upwards, and the value's interval; a value without one is its own.
        look: colour and marker.
        alpha: opacity of the band.
        more: passed on to the line.
    """
    known = [(x, y, ci or (y, y)) for x, y, ci in points if y is not None]
    if known:
        xs, ys, cis = zip(*known, strict=True)
        low, high = zip(*cis, strict=True)
        axes.fill_between(xs, low, high, color=look["color"], alpha=alpha, linewidth=0)
        axes.plot(xs, ys, **look, markersize=5, **more)


def mark(picture: bytes) -> bytes:
    """Write over a picture that its images are made up.

    Args:
        picture: as PNG bytes.

    Returns:
        The picture below the line, as PNG bytes.
    """
    from matplotlib.font_manager import findfont
    from PIL import Image, ImageDraw, ImageFont

    drawn = Image.open(io.BytesIO(picture)).convert("RGB")
    marked = Image.new("RGB", (drawn.width, drawn.height + BAND), "white")
    marked.paste(drawn, (0, BAND))
    font = ImageFont.truetype(findfont("DejaVu Sans"), BAND // 2)
    ImageDraw.Draw(marked).text((BAND // 4, BAND // 4), MADE_UP, canvas.RED, font)
    data = io.BytesIO()
    marked.save(data, "PNG")
    return data.getvalue()


def _plane(axes: Axes, rows: Rows, _: str) -> None:
    first, *others = dict.fromkeys(row["column"] for row in rows)
    across = {row["row"]: row["ours"] for row in rows if row["column"] == first}
    for nth, column in enumerate(others):
        here = [row for row in rows if row["column"] == column and row["row"] in across]
        xs, ys = [across[row["row"]] for row in here], [row["ours"] for row in here]
        axes.plot(xs, ys, **canvas.look(nth) | {"linestyle": ""}, label=column)
        for row, x, y in zip(here, xs, ys, strict=True):
            axes.annotate(row["row"], (x, y), fontsize="x-small")
    axes.set_xlabel(first)


def _plot(axes: Axes, rows: Rows, kind: str) -> None:
    labels = list(dict.fromkeys(row["row"] for row in rows))
    columns = list(dict.fromkeys(row["column"] for row in rows))
    step = (0.8 if kind == "bars" else 0.2) / len(columns)
    for nth, column in enumerate(columns):
        here = [row for row in rows if row["column"] == column]
        shift = (nth - (len(columns) - 1) / 2) * step
        places = [labels.index(row["row"]) + shift for row in here]
        values, low, high = (
            np.array([row["ours"] if row[name] is None else row[name] for row in here])
            for name in ("ours", "low", "high")
        )
        errors = np.stack([values - low, high - values])
        look = canvas.look(nth)
        if kind == "bars":
            face = {"color": look["color"], "hatch": "//" * (nth // len(canvas.COLOURS))}
            axes.bar(places, values, step, yerr=errors, label=column, capsize=2, **face)
        else:
            axes.errorbar(places, values, errors, **look, label=column, capsize=2)
        beside = [row.get("theirs") for row in here]  # a row of made-up images has no such key
        printed = [
            (p, theirs) for p, theirs in zip(places, beside, strict=True) if theirs is not None
        ]
        if printed:
            x, y = zip(*printed, strict=True)
            axes.scatter(x, y, marker="x", color=canvas.INK, zorder=3,
                         label="the paper" if nth == 0 else None)  # fmt: skip
    turned = len(labels) > LONGEST or max(map(len, labels)) > 2 * LONGEST
    axes.set_xticks(range(len(labels)), labels, rotation=25 if turned else 0,
                    ha="right" if turned else "center")  # fmt: skip
