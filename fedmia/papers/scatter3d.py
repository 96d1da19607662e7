"""The paper's scatter plots in three dimensions: Figs. 7 and 9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmia.attacks._classifier import fit_classifier
from fedmia.papers.reading import FEATURES, SnapshotFeatures
from fedmia.papers.tables import shown_layers
from fedmia.records import FloatArray
from fedmia.report.figures import canvas

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 1000  # points a side
Plane = tuple[NDArray[np.float64], float]


@canvas.drawn
def confidences(reading: SnapshotFeatures) -> Figure:
    """Fig. 7: the three largest confidences of the encoder's output, avgpool and the last layer,
    each axis on a log scale."""
    layers = shown_layers(reading)
    figure = canvas.new_figure(4.2 * len(layers), 4.4)
    for i, layer in enumerate(layers):
        axes: Any = figure.add_subplot(1, len(layers), i + 1, projection="3d")
        members, others = (side / np.log(10) for side in reading.scored(layer))
        _points(axes, members, others)
        for side, name in zip("xyz", ("1st", "2nd", "3rd"), strict=True):
            getattr(axes, f"set_{side}label")(f"log10 of the {name}", labelpad=6, fontsize=8)
        axes.locator_params(nbins=4)
        axes.set_title(layer)
        if i == 0:
            axes.legend(loc="upper left")
    return figure


@canvas.drawn
def combined(reading: SnapshotFeatures) -> Figure:
    """Fig. 9: the combined features in space, with the plane of the LDA that the known images
    fitted: on it the classifier is undecided."""
    members, others = reading.scored("combined")
    normal, offset = plane(fit_classifier("lda", *reading.known_features("combined")))
    figure = canvas.new_figure(6.8, 5.8)
    axes: Any = figure.add_subplot(projection="3d")
    _points(axes, members, others)
    both = np.concatenate([members, others])
    corners = surface(normal, offset, both.min(axis=0), both.max(axis=0))
    axes.plot_surface(*corners, color=canvas.GREEN, alpha=0.35, linewidth=0, shade=False)
    for side, name in zip("xyz", FEATURES, strict=True):
        getattr(axes, f"set_{side}label")(name, labelpad=6)
    for side, low, high in zip("xyz", both.min(axis=0), both.max(axis=0), strict=True):
        if high > low:
            getattr(axes, f"set_{side}lim")(low, high)
    axes.set_title(f"Combined features ({canvas.counts(len(members), len(others))})")
    axes.legend(loc="upper left")
    return figure


def _points(axes: Any, members: FloatArray, others: FloatArray) -> None:
    look = {"s": 12, "alpha": 0.6, "linewidths": 0, "depthshade": False}
    for rows, colour, marker, label in (
        (others, canvas.SKY, "o", "non-members"), (members, canvas.MEMBER, "^", "members"),
    ):  # fmt: skip
        some = rows[:: max(1, -(-len(rows) // MOST))]
        axes.scatter(*some.T, c=colour, marker=marker, label=label, **look)
    axes.tick_params(labelsize=7)
    axes.set_box_aspect(None, zoom=0.85)


def plane(model: Pipeline) -> Plane:
    """(normal, offset) of the classifier's plane in the features' own units: it says member where
    `features @ normal > offset`.

    Args:
        model: a scaler and a linear classifier, as `fit_classifier` gives for `lda` and `lr`.
    """
    scaler, linear = model[0], model[-1]
    normal = linear.coef_[0] / scaler.scale_
    return normal, float(normal @ scaler.mean_ - linear.intercept_[0])


def surface(
    normal: NDArray[np.float64], offset: float, low: FloatArray, high: FloatArray
) -> tuple[NDArray[np.float64], ...]:
    """The plane as (x, y, z) grids within a box, NaN outside it; solved for the axis along which
    it is steepest, given the box's sides.

    Args:
        normal: (3,), orthogonal to the plane.
        offset: of the plane from the origin, along `normal`.
        low: (3,), corner of the box.
        high: (3,), the opposite corner.

    Returns:
        Grids of x, y and z.
    """
    axis = int(np.argmax(np.abs(normal) * (high - low)))
    free = [i for i in range(3) if i != axis]
    grids: list[NDArray[np.float64]] = [np.zeros(0)] * 3
    sides = (np.linspace(low[i], high[i], 40) for i in free)
    grids[free[0]], grids[free[1]] = np.meshgrid(*sides)
    rest = offset - normal[free[0]] * grids[free[0]] - normal[free[1]] * grids[free[1]]
    if normal[axis] == 0:
        grids[axis] = np.full_like(rest, np.nan)
        return tuple(grids)
    solved = rest / normal[axis]
    grids[axis] = np.where((solved >= low[axis]) & (solved <= high[axis]), solved, np.nan)
    return tuple(grids)
