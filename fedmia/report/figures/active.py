"""Figures of an active attack: loss by round, before and after its act, accuracy by threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.records import Curves, Evaluation, FloatArray, IntArray, ScoredAttack
from fedmia.records.attack_rows import AttackRow
from fedmia.records.rows import Report
from fedmia.report.figures import canvas
from fedmia.report.figures.base import ReportFigure
from fedmia.report.figures.roc import scored_attacks
from fedmia.report.words.numbers import number
from fedmia.statistics.thresholds import roc

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class LossByRound(ReportFigure):
    """Median loss and middle half, members and non-members, by round under the act, and the same
    rounds without it beside (of ascent: Fig. 13 of the paper).

    Args:
        report: made of the scores.
        curves: of the act.
    """

    def __init__(self, report: Report, curves: Curves) -> None:
        super().__init__(report)
        self.curves = curves
        self.name = curves.act
        self.place = place_of(curves.act)

    def panels(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """With the act and without -> losses of members (R, n) and of non-members (R, m)."""
        curves = self.curves
        panels = {f"with {curves.act}": (curves.members, curves.nonmembers)}
        if curves.control_members is not None and curves.control_nonmembers is not None:
            without = curves.control_members, curves.control_nonmembers
            panels[f"without {curves.act}"] = without
        return panels

    def plot(self) -> Figure | None:
        curves, panels = self.curves, self.panels()
        if len(curves.rounds) == 0:
            return None
        n = canvas.counts(curves.members.shape[1], curves.nonmembers.shape[1])
        heading = f"Loss of the scored images, median and quartiles ({n})"
        figure, grid = _panels(1, len(panels), canvas.WIDE, 2.6, heading)
        for axes, (title, (members, nonmembers)) in zip(grid[0], panels.items(), strict=True):
            _band(axes, curves.rounds, nonmembers, canvas.NONMEMBER, "non-members", "s--")
            _band(axes, curves.rounds, members, canvas.MEMBER, "members", "o-")
            axes.set_title(title, weight="normal")
            canvas.whole_rounds(axes)
            axes.grid(axis="y")
        grid[0, 0].set_ylabel("loss on the aggregated model")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower left", ncols=2)
        return figure

    def caption(self) -> str:
        without = " and in the same federation without" * (len(self.panels()) > 1)
        return (
            f"Loss of the scored images on the aggregated model, in the federation with "
            f"{self.curves.act}{without}: median (line) and quartiles (band)."
        )

    def alt(self) -> str:
        last = f"in round {self.curves.rounds[-1]}"
        texts = [
            f"{title} {np.median(members[-1]):.3g} of members and "
            f"{np.median(nonmembers[-1]):.3g} of non-members"
            for title, (members, nonmembers) in self.panels().items()
        ]
        return f"Loss by round. Its median {last}: {'; '.join(texts)}."


class LossBeforeAfter(ReportFigure):
    """Loss of members and of non-members before and after the act (of static ascent: Fig. 11).

    Args:
        report: made of the scores.
        curves: of the act.
    """

    def __init__(self, report: Report, curves: Curves) -> None:
        super().__init__(report)
        self.curves = curves
        self.name = f"{curves.act}-losses"
        self.place = place_of(curves.act)

    def plot(self) -> Figure | None:
        return distributions(self.curves)

    def caption(self) -> str:
        return (
            "Loss of the scored images before the first crafted update and right after the local "
            f"{self.curves.act}."
        )

    def alt(self) -> str:
        texts = [
            f"{np.median(before):.3g} before and {np.median(after):.3g} after of {side}"
            for side, (before, after) in _before_after(self.curves).items()
        ]
        return (
            f"Histograms of the loss before and after the local {self.curves.act}. Medians: "
            f"{'; '.join(texts)}."
        )


def place_of(act: str) -> str:
    """Where the page shows the figures of an active attack."""
    return f"Under {act}"


def _panels(
    down: int, across: int, width: float, height: float, heading: str
) -> tuple[Figure, Any]:
    """A figure and its plots (down, across), which share what goes upwards."""
    figure = canvas.new_figure(width, height)
    figure.suptitle(heading, x=0.01, ha="left")
    return figure, figure.subplots(down, across, sharey=True, squeeze=False)


def _band(
    axes: Axes, rounds: IntArray, losses: FloatArray, colour: str, label: str, style: str
) -> None:
    low, middle, high = np.quantile(losses, [0.25, 0.5, 0.75], axis=1)
    axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(rounds, middle, style, color=colour, label=label)


def _before_after(curves: Curves) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Members and non-members -> their losses before and after the act, where both are known."""
    sides: dict[str, tuple[Any, Any]] = {
        "members": (curves.before_members, curves.after_members),
        "non-members": (curves.before_nonmembers, curves.after_nonmembers),
    }
    return {
        title: both
        for title, both in sides.items()
        if all(losses is not None and len(losses) for losses in both)
    }


def distributions(curves: Curves) -> Figure | None:
    """Loss of members and of non-members before and after the act.

    Args:
        curves: of the act.

    Returns:
        The figure, None without losses of both times.
    """
    panels = _before_after(curves)
    if not panels:
        return None
    every = [losses for both in panels.values() for losses in both]
    # The outermost half per cent piles up in the end bins.
    low, high = np.quantile(np.concatenate(every), [0.005, 0.995])
    edges = np.linspace(low, high if high > low else low + 1, 31)
    # After a strong climb one bin would hold them all.
    if wide := 0 < low < 10 * np.median([np.median(losses) for losses in every]) < high:
        edges = np.geomspace(low, high, 31)
    heading = f"Loss before and after the local {curves.act}"
    figure, grid = _panels(1, len(panels), canvas.WIDE, 2.4, heading)
    filled = {"histtype": "stepfilled", "color": canvas.GREY, "alpha": 0.45}
    outlined = {"histtype": "step", "color": canvas.RED}
    for axes, (title, (before, after)) in zip(grid[0], panels.items(), strict=True):
        for when, losses, look in (("before", before, filled), ("after", after, outlined)):
            shares, inside = np.full(len(losses), 100 / len(losses)), losses.clip(*edges[[0, -1]])
            look = look | {"linewidth": 1.2, "label": f"{when} {curves.act}"}
            axes.hist(inside, edges.tolist(), weights=shares, **look)
        axes.set_title(f"{len(before):,} {title}", weight="normal")
        axes.set_xlabel("loss")
        if wide:
            axes.set_xscale("log")
        else:
            axes.locator_params(axis="x", nbins=4)  # long numbers stand side by side
    grid[0, 0].set_ylabel("% of images")
    canvas.legend(grid[0, 0], 2)
    return figure


class AccuracyByThreshold(ReportFigure):
    """Balanced accuracy by threshold of the attacks that read `act`, with the threshold chosen on
    known images marked; None without such an attack.

    Args:
        report: made of the scores.
        run: the scores.
        act: of the malicious client, as `ascent`.
    """

    def __init__(self, report: Report, run: Evaluation, act: str) -> None:
        super().__init__(report)
        self.name, self.place, self.act = f"{act}-thresholds", place_of(act), act
        rows = {row.name: row for row in report.attacks}
        self.attacks = [(a, rows[a.name]) for a in scored_attacks(run, report) if a.act == act]

    def plot(self) -> Figure | None:
        if not self.attacks:
            return None
        across = min(3, len(self.attacks))
        down = -(-len(self.attacks) // across)
        size = canvas.COLUMN if across == 1 else canvas.WIDE, 0.6 + 2 * down
        figure, grid = _panels(down, across, *size, f"Accuracy by threshold under {self.act}")
        for axes in grid.flat[len(self.attacks) :]:
            axes.set_visible(False)
        for axes, (attack, row) in zip(grid.flat, self.attacks, strict=False):
            _accuracy(axes, attack, row)
        for axes in grid[:, 0]:
            axes.set_ylabel("balanced accuracy")
        canvas.legend(grid[0, 0])
        return figure

    def caption(self) -> str:
        return (
            "Balanced accuracy by threshold of the score. Marked: the threshold chosen on the "
            "known images, and the best one on the scored images (oracle)."
        )

    def alt(self) -> str:
        texts = [
            f"{row.name} {number(row.accuracy)} at the threshold chosen on known images, at best "
            f"{number(row.oracle_accuracy)}"
            for _, row in self.attacks
        ]
        return f"Balanced accuracy by threshold under {self.act}: {'; '.join(texts)}."


def _accuracy(axes: Axes, attack: ScoredAttack, row: AttackRow) -> None:
    both = np.concatenate([attack.scores_members, attack.scores_nonmembers])
    fpr, tpr = roc(attack.scores_members, attack.scores_nonmembers)
    cuts = np.unique(both)[::-1]
    accuracy = (1 + tpr[1:] - fpr[1:]) / 2
    axes.plot(cuts, accuracy, color=canvas.BLUE, label="balanced accuracy")
    best = int(np.argmax(accuracy))
    oracle: Any = {"color": canvas.GREY, "label": "best on scored images (oracle)"}
    axes.plot(cuts[best], accuracy[best], "^", **oracle)
    if row.threshold is not None and row.accuracy is not None:
        chosen: Any = {"color": canvas.RED, "label": "chosen on known images"}
        axes.plot(row.threshold, row.accuracy, "o", **chosen)
        axes.axvline(row.threshold, color=canvas.RED, linewidth=0.8, linestyle=":")
    canvas.half_line(axes)
    low, high = np.quantile(both, [0.005, 0.995])
    if high > low:
        axes.set_xlim(low, high)
    n = f"{row.n_members} + {row.n_nonmembers} images"
    axes.set_title(f"{attack.name}\n{n}", weight="normal")
    axes.locator_params(axis="x", nbins=3)
    axes.set_xlabel("threshold of the score")
