"""What all figures share: palette, page, PNG bytes. matplotlib is imported when one is drawn."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fedmia.records.attack_rows import AucRow, ends
from fedmia.records.client_rows import LeakRow

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Leakage = AucRow | LeakRow  # a row with an AUC and both intervals
P = ParamSpec("P")
F = TypeVar("F")
# Okabe and Ito's palette, told apart by colour-blind readers; black and yellow left out.
BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"
ORANGE, SKY, PINK = "#E69F00", "#56B4E9", "#CC79A7"
GREY, INK = "#767676", "#222222"
COLUMN, WIDE = 3.4, 7.0  # widths of all figures, inches: a column of a paper, and both
DPI = 160  # of PNGs
LETTER, HANDLE = 0.062, 0.5  # inches, of a legend's text and of what stands before it
MEMBER, NONMEMBER = RED, BLUE
COLOURS = (BLUE, RED, GREEN, ORANGE, PINK, SKY, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
STYLE: dict[Any, Any] = {
    "figure.dpi": DPI,
    "figure.titlesize": 8,
    "figure.titleweight": "bold",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 7,
}


@contextmanager
def _style() -> Iterator[None]:
    """The figures' settings over matplotlib's own: no session's and no matplotlibrc's count."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def apply_style(draw: Callable[P, F]) -> Callable[P, F]:
    """`draw` under the figures' settings of matplotlib."""

    @functools.wraps(draw)
    def under_style(*args: P.args, **options: P.kwargs) -> F:
        with _style():
            return draw(*args, **options)

    return under_style


def drawn(draw: Callable[P, Figure | None]) -> Callable[P, bytes | None]:
    """`draw` under the figures' settings of matplotlib, and its figure as PNG bytes."""

    @functools.wraps(draw)
    def as_png(*args: P.args, **options: P.kwargs) -> bytes | None:
        figure = apply_style(draw)(*args, **options)
        return None if figure is None else encode(figure)

    return as_png


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches, outside pyplot's state.

    Args:
        width: in inches, COLUMN or WIDE.
        height: in inches.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05)
    figure = Figure(figsize=(width, height), layout=layout)
    # Jupyter shows a Figure by itself only after pyplot was imported, which none of this needs.
    figure._repr_png_ = functools.partial(encode, figure)  # type: ignore[attr-defined]
    return figure


def one(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one plot.

    Args:
        width: in inches, COLUMN or WIDE.
        height: in inches.

    Returns:
        The figure and its plot.
    """
    figure = new_figure(width, height)
    return figure, figure.add_subplot()


def encode(figure: Figure, kind: str = "png", text: Mapping[str, str] | None = None) -> bytes:
    """The figure as a file, without a date or version, so that reruns compare equal.

    Args:
        figure: that was drawn.
        kind: `png` or `pdf`.
        text: what the file says of itself, by keyword.

    Returns:
        The bytes of the file.
    """
    data = io.BytesIO()
    keys = ("Software",) if kind == "png" else ("CreationDate", "Creator", "Producer")
    with _style():  # ticks are made when the figure is written
        figure.savefig(
            data, format=kind, facecolor="white", metadata=dict.fromkeys(keys) | dict(text or {})
        )
    return data.getvalue()


def look(i: int) -> dict[str, Any]:
    """Colour, dashes and marker of the i-th line; where colours come again, the markers move on."""
    turn = i // len(COLOURS)
    lists = {"color": (COLOURS, i), "linestyle": (DASHES, i), "marker": (MARKERS, i + turn)}
    return {name: choices[at % len(choices)] for name, (choices, at) in lists.items()}


def legend(axes: Axes, columns: int = 3) -> None:
    """What `axes` shows, named below the figure in as many columns as its width takes."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        legend_below(axes.figure, handles, columns, labels)


def legend_below(
    figure: Any, handles: Sequence[Artist], columns: int, labels: Sequence[str] | None = None
) -> None:
    """A legend below the figure.

    Args:
        figure: to draw on.
        handles: what it shows.
        columns: most columns; fewer where the figure is too narrow.
        labels: names of the handles; None for their own.
    """
    labels = [str(handle.get_label()) for handle in handles] if labels is None else labels
    fits = figure.get_figwidth() // (HANDLE + LETTER * max(map(len, labels)))
    columns = int(max(1, min(columns, fits)))
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, columnspacing=1.2)


def estimate(
    axes: Axes,
    place: float,
    row: Leakage,
    shape: str = "o",
    *,
    faint: bool = False,
    label: str | None = None,
) -> None:
    """An AUC on its 95 % interval (thick) and the simultaneous one (thin), across at `place`.

    Args:
        axes: to draw on.
        place: on the vertical axis.
        row: of a report, with an AUC and both intervals.
        shape: marker of matplotlib.
        faint: whether it is a control, drawn in grey.
        label: in the legend; None for none.
    """
    colour, width, face = (GREY, 1.8, "white") if faint else (BLUE, 3.0, BLUE)
    together, alone = ends(row), row.auc_ci
    if row.auc is None or together is None or alone is None:
        return
    axes.plot(together, [place] * 2, color=colour, linewidth=0.8)
    axes.plot(alone, [place] * 2, color=colour, linewidth=width, alpha=0.6)
    look: dict[str, Any] = {"markerfacecolor": face, "label": label}
    axes.plot(row.auc, place, shape, color=colour, **look)


def auc_axis(axes: Axes, label: str) -> None:
    """AUC across, named; nothing upwards but names.

    Args:
        axes: whose horizontal axis has the AUC.
        label: of this axis.
    """
    half_line(axes, vertical=True)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel(label)


def half_line(axes: Axes, *, vertical: bool = False) -> None:
    """The line of AUC 0.5, where nothing is told."""
    draw = axes.axvline if vertical else axes.axhline
    draw(0.5, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=0)


def whole_rounds(axes: Axes) -> None:
    """Ticks at whole rounds only, and the axis named."""
    from matplotlib.ticker import MaxNLocator

    low, high = axes.dataLim.intervalx
    if low == high:  # one round: no room for ticks between whole numbers
        axes.set_xlim(low - 1, high + 1)
        axes.set_xticks([low], [f"{low:.0f}"])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")


def counts(members: int, nonmembers: int) -> str:
    """`112 members, 500 non-members`."""
    return f"{members:,} members, {nonmembers:,} non-members"
