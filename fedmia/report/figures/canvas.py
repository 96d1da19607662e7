"""What all figures share: palette, page, PNG bytes. matplotlib is imported when one is drawn."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by colour-blind readers; black and yellow left out.
BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"
ORANGE, SKY, PINK = "#E69F00", "#56B4E9", "#CC79A7"
GREY, INK = "#767676", "#222222"
MEMBER, NONMEMBER = RED, BLUE
COLOURS = (BLUE, RED, GREEN, ORANGE, PINK, SKY, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
STYLE: Mapping[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.grid": False,
    "axes.axisbelow": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.dpi": 110,
}


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's settings for the figures, restored afterwards."""
    import matplotlib

    settings: Any = {"backend": "agg", **STYLE}
    with matplotlib.rc_context(settings):
        yield


def new(width: float, height: float) -> Figure:
    """An empty figure of that many inches, outside pyplot's state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def look(i: int) -> dict[str, Any]:
    """Colour, dashes and marker of the i-th line."""
    lists = {"color": COLOURS, "linestyle": DASHES, "marker": MARKERS}
    return {name: held[i % len(held)] for name, held in lists.items()}


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes, without a date or version, so that reruns compare equal."""
    data = io.BytesIO()
    figure.savefig(data, format="png", facecolor="white", metadata={"Software": None})
    return data.getvalue()


def half_line(axes: Axes, *, vertical: bool) -> None:
    """The line of AUC 0.5, where nothing is told."""
    draw = axes.axvline if vertical else axes.axhline
    draw(0.5, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=0)


def whole_rounds(axes: Axes) -> None:
    """Ticks at whole rounds only, and the axis named."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")


def counts(members: int, nonmembers: int) -> str:
    """`112 members, 500 non-members`."""
    return f"{members:,} members, {nonmembers:,} non-members"
