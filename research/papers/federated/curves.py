"""The paper's figures over rounds, steps and thresholds: Figs. 5, 6, 8, 10, 12 and 13."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.records import Curves, FloatArray
from fedmia.records.rows import RoundRow
from fedmia.report.figures import canvas
from fedmia.report.figures.rounds import shade_attacked
from fedmia.statistics.thresholds import best_threshold, roc
from research.papers.claims.of_ascent import PAPER
from research.papers.drawing import band
from research.papers.federated.reading import FEATURES, SnapshotFeatures
from research.papers.federated.static_ascent import StaticAscentScores
from research.papers.federated.tables import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

History = Sequence[RoundRow]
Z = 1.96  # of a 95 % interval of a mean
SPAN = 10  # times what is least, and a linear scale hides that


def _panels(height: float, heading: str, across: int = 2) -> tuple[Figure, Any]:
    figure = canvas.new_figure(canvas.WIDE, height)
    figure.suptitle(heading, x=0.01, ha="left")
    return figure, figure.subplots(1, across, squeeze=False)[0]


def _means(
    axes: Axes, xs: Sequence[int], values: Sequence[FloatArray], colour: str, label: str, style: str
) -> None:
    """Mean of each of `values` with its 95 % interval (dark) and the middle half (light)."""
    mean = np.array([v.mean() for v in values])
    half = np.array([Z * v.std(ddof=len(v) > 1) / np.sqrt(len(v)) for v in values])
    low, high = (np.array([np.quantile(v, q) for v in values]) for q in (0.25, 0.75))
    axes.fill_between(xs, low, high, color=colour, alpha=0.10, linewidth=0)
    axes.fill_between(xs, mean - half, mean + half, color=colour, alpha=0.35, linewidth=0)
    axes.plot(xs, mean, style, color=colour, label=label)


def _draw_both_sides(
    axes: Axes, xs: Sequence[int], members: Sequence[FloatArray], others: Sequence[FloatArray]
) -> None:
    _means(axes, xs, others, canvas.NONMEMBER, "non-members", "s--")
    _means(axes, xs, members, canvas.MEMBER, "members", "o-")
    axes.grid(axis="y")


def _scale(axes: Axes, side: str, values: Any) -> None:
    """A log scale of `side`, linear close to 0, where the values lie too far apart for another."""
    least, most = np.abs(values).min(), np.abs(values).max()
    if 0 < SPAN * least < most:
        getattr(axes, f"set_{side}scale")("symlog", linthresh=least, subs=(2, 5))
        for name in ("major", "minor"):
            getattr(getattr(axes, f"{side}axis"), f"set_{name}_formatter")("{x:g}")


@canvas.drawn
def overfitting(readings: Sequence[SnapshotFeatures], history: History) -> Figure:
    """Fig. 5: loss and cosine similarity of members and non-members by evaluated round.

    Args:
        readings: features of each evaluated round.
        history: the report's rounds.

    Returns:
        The figure.
    """
    sides = [r.scored("combined") for r in readings]
    n = canvas.counts(len(sides[0][0]), len(sides[0][1]))
    heading = f"Mean, its 95 % interval (dark), middle half (light) ({n})"
    figure, grid = _panels(2.9, heading)
    for axes, column in zip(grid, (1, 0), strict=True):
        members, others = ([side[i][:, column] for side in sides] for i in (0, 1))
        _draw_both_sides(axes, [r.round for r in readings], members, others)
        shade_attacked(axes, history, label=axes is grid[0])
        axes.set_ylabel(FEATURES[column])
        canvas.whole_rounds(axes)
    canvas.legend(grid[0], 4)
    return figure


@canvas.drawn
def by_round(
    rows: Mapping[str, Sequence[tuple[int, Row]]], history: History, heading: str, dashed: str
) -> Figure:
    """Figs. 6 and 8: accuracy and AUC of each name by round, with 95 % bands.

    Args:
        rows: name -> rates by round.
        history: the report's rounds; those under attack are shaded.
        heading: title of the figure.
        dashed: the name whose line is dashed.

    Returns:
        The figure.
    """
    first = next(iter(rows.values()))[0][1]
    n = canvas.counts(first["n_members"], first["n_nonmembers"])
    figure, grid = _panels(3.0, f"{heading} ({n})")
    pairs: Any = (("accuracy", "accuracy_ci", "balanced accuracy"), ("auc", "auc_ci", "AUC"))
    for axes, (key, ci, label) in zip(grid, pairs, strict=True):
        for i, (name, series) in enumerate(rows.items()):
            look = canvas.look(i) | {"linestyle": "--" if name == dashed else "-"}
            band(axes, [(r, row[key], row[ci]) for r, row in series], look, 0.08, label=name)
        canvas.half_line(axes)
        shade_attacked(axes, history, label=axes is grid[0])
        axes.grid(axis="y")
        axes.set_ylabel(label)
        canvas.whole_rounds(axes)
    canvas.legend(grid[0], 5)
    return figure


@canvas.drawn
def by_step(climb: StaticAscentScores) -> Figure | None:
    """Fig. 10: loss of the images under test by step of the static climb, and its rise."""
    if climb.members is None or climb.nonmembers is None:
        return None
    n = canvas.counts(climb.members.shape[1], climb.nonmembers.shape[1])
    chosen = "".join(f", {name} {value:g}" for name, value in climb.scored.choices.items())
    figure, grid = _panels(2.9, f"Static ascent on round {climb.round}{chosen} ({n})")
    for axes, label, start in zip(grid, (FEATURES[1], "its rise"), (0, 1), strict=True):
        sides = [side - start * side[0] for side in (climb.members, climb.nonmembers)]
        _draw_both_sides(axes, range(len(climb.members)), *map(list, sides))
        _scale(axes, "y", [side[-1].mean() for side in sides])
        canvas.whole_rounds(axes)
        axes.set_xlabel("step of the ascent")
        axes.set_ylabel(label)
    canvas.legend(grid[0])
    return figure


@canvas.drawn
def thresholds(climbs: Sequence[StaticAscentScores]) -> Figure:
    """Fig. 12: accuracy of the static climb by threshold, a line for each evaluated round, with
    the threshold that the known images chose."""
    import matplotlib

    shades = matplotlib.colormaps["viridis_r"]
    figure, axes = canvas.one(canvas.WIDE, 3.8)
    for i, climb in enumerate(climbs):
        colour = shades(0.1 + 0.9 * i / max(1, len(climbs) - 1))
        scored = climb.scored
        members, others = scored.scores_members, scored.scores_nonmembers
        cuts = np.unique(np.concatenate([members, others]))[::-1]
        fpr, tpr = roc(members, others)
        axes.plot(-cuts, (1 + tpr[1:] - fpr[1:]) / 2, color=colour, label=f"round {climb.round}")
        if (own := best_threshold(scored.known_members, scored.known_nonmembers)) is not None:
            accuracy = ((members > own).mean() + (others <= own).mean()) / 2
            axes.plot(-own, accuracy, "o", color=colour, markeredgecolor=canvas.INK)
    canvas.half_line(axes)
    look: Any = {"color": canvas.GREY, "linestyle": ":"}
    axes.axhline(PAPER, **look, label=f"the paper: over {PAPER:.2f}")
    every = np.concatenate([s for c in climbs for s in (c.scored.scores_members,
                                                       c.scored.scores_nonmembers)])  # fmt: skip
    low, high = np.quantile(-every, [0.01, 0.99])
    if high > low:
        axes.set_xlim(low, high)
    _scale(axes, "x", np.quantile(-every, [0.25, 0.99]))
    axes.set_xlabel("threshold: a loss that rises less is a member's")
    axes.set_ylabel("balanced accuracy")
    axes.set_title("Static ascent by threshold and round (dot: chosen on known images)")
    canvas.legend(axes, 5)
    return figure


@canvas.drawn
def federated(curves: Curves, strategy: str) -> Figure:
    """Fig. 13: loss on the aggregated model while a client acts in every round: (a) all losses,
    (b) their means with the act and, thin, without it.

    Args:
        curves: of a run.
        strategy: by which it aggregates.

    Returns:
        The figure.
    """
    n = canvas.counts(curves.members.shape[1], curves.nonmembers.shape[1])
    figure, (own_axes, right) = _panels(3.0, f"Loss of the images under test ({n})")
    _draw_both_sides(
        own_axes, curves.rounds.tolist(), list(curves.members), list(curves.nonmembers)
    )
    before = "before the attack", "D", -1, curves.before_members, curves.before_nonmembers
    upload = "first upload", "*", 0, curves.after_members, curves.after_nonmembers
    for label, marker, at, ours, others in (before, upload):
        if ours is not None and others is not None:
            x, shape = curves.rounds[:1] + at, {"linestyle": "", "marker": marker, "markersize": 8}
            own_axes.plot(x, ours.mean(), **shape, color=canvas.MEMBER, label=label)
            own_axes.plot(x, others.mean(), **shape, color=canvas.NONMEMBER)
    own_axes.set_title(f"(a) with {curves.act} in every round", weight="normal")
    colour = canvas.COLOURS[2]
    for label, members, others, width, fill in (
        (curves.act, curves.members, curves.nonmembers, 1.8, colour),
        (f"no {curves.act}", curves.control_members, curves.control_nonmembers, 0.8, "white"),
    ):
        if members is not None and others is not None:
            look: Any = {"color": colour, "linewidth": width, "markerfacecolor": fill}
            look |= {"markersize": 5}
            right.plot(
                curves.rounds, members.mean(axis=1), "o-", **look, label=f"{strategy}, {label}"
            )
            right.plot(curves.rounds, others.mean(axis=1), "s--", **look)
    right.set_title("(b) mean; dashed: non-members", weight="normal")
    for axes in (own_axes, right):
        _scale(axes, "y", np.concatenate([line.get_ydata() for line in axes.lines]))
        axes.grid(axis="y")
        canvas.whole_rounds(axes)
    own_axes.set_ylabel("mean loss on the aggregated model")
    own_axes.legend(loc="best")
    right.legend(loc="best")
    return figure
