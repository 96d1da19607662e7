"""What the combined attack reads: its three features, two at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmia.records import Evaluation, FloatArray
from fedmia.records.rows import Report
from fedmia.report.figures import canvas
from fedmia.report.figures.base import ReportFigure, count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAIRS = ((0, 1), (0, 2), (1, 2))  # of three features: the one across, the one upwards
MOST = 1000  # points of a side


class Features(ReportFigure):
    """The three features of the combined attack, two at a time (Fig. 9 of the paper shows them in
    space); None where no attack handed its features over.

    Args:
        report: made of the scores.
        run: the scores.
    """

    name = "features"
    place = "attacks in detail"

    def __init__(self, report: Report, run: Evaluation) -> None:
        super().__init__(report)
        self.attack = next((a for a in run.attacks if a.features_members is not None), None)

    def plot(self) -> Figure | None:
        if self.attack is None:
            return None
        members, nonmembers = self._sides()
        figure = canvas.new_figure(canvas.WIDE, 2.7)
        panels = figure.subplots(1, 3)
        draw_pairs(panels, members, nonmembers, self._names())
        sizes = canvas.counts(len(members), len(nonmembers))
        heading = f"Features of {self.attack.name}, two at a time ({sizes})"
        figure.suptitle(heading, x=0.01, ha="left")
        canvas.legend(panels[0])
        return figure

    def caption(self) -> str:
        return (
            "The three features that the combined attack uses, two at a time, of members and "
            f"non-members; at most {MOST:,} images of each are drawn."
        )

    def alt(self) -> str:
        members, nonmembers = self._sides()
        middles = (np.median(side, axis=0) for side in (members, nonmembers))
        medians = "; ".join(
            f"{name} {inside:.3g} and {outside:.3g}"
            for name, inside, outside in zip(self._names(), *middles, strict=True)
        )
        sizes = f"{count(len(members), 'member')} and {count(len(nonmembers), 'non-member')}"
        return (
            f"Scatter plots of three features of {sizes}. Medians of members and of non-members: "
            f"{medians}."
        )

    def _sides(self) -> tuple[FloatArray, FloatArray]:
        """Features of the members (n, 3) and of the non-members (m, 3)."""
        empty = np.zeros((0, 3))
        if self.attack is None:
            return empty, empty
        members, nonmembers = self.attack.features_members, self.attack.features_nonmembers
        return empty if members is None else members, empty if nonmembers is None else nonmembers

    def _names(self) -> Sequence[str]:
        names = () if self.attack is None else self.attack.feature_names
        return names or ("feature 1", "feature 2", "feature 3")


def draw_pairs(
    panels: Sequence[Axes], members: FloatArray, nonmembers: FloatArray, names: Sequence[str]
) -> None:
    """Draw three features in three plots, members and non-members on the same axes.

    Args:
        panels: the three plots, in the order of PAIRS.
        members: (N, 3) features.
        nonmembers: (M, 3) features.
        names: of the three features.
    """
    look: dict[str, Any] = {"s": 7, "alpha": 0.65, "linewidths": 0}
    for axes, (across, up) in zip(panels, PAIRS, strict=True):
        for side, colour, marker, label in (
            (nonmembers, canvas.SKY, "o", "non-members"),
            (members, canvas.MEMBER, "^", "members"),
        ):
            points = side[:: max(1, -(-len(side) // MOST))]
            axes.scatter(
                points[:, across], points[:, up], c=colour, marker=marker, label=label, **look
            )
        axes.set_xlabel(names[across])
        axes.set_ylabel(names[up])
        axes.locator_params(axis="x", nbins=3)  # long numbers stand side by side
        axes.locator_params(axis="y", nbins=5)
