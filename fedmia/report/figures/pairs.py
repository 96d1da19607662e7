"""Features of members and non-members, two at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedmia.records import FloatArray
from fedmia.report.figures import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAIRS = ((0, 1), (0, 2), (1, 2))  # of three features: the one across, the one upwards
MOST = 1000  # points of a side


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
    look: dict[str, Any] = {"s": 14, "alpha": 0.65, "linewidths": 0}
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
