"""The paper's scatter plots of three features, Figs. 7 and 9, drawn two features at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmia.attacks.classifier import decide, fit_classifier
from fedmia.records import FloatArray
from fedmia.report.figures import canvas
from fedmia.report.figures.features import PAIRS, draw_pairs
from research.papers.federated.reading import FEATURES, SnapshotFeatures
from research.papers.federated.tables import shown_layers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from sklearn.pipeline import Pipeline

Plane = tuple[NDArray[np.float64], float]
UNDECIDED = "LDA undecided"


@canvas.drawn
def confidences(reading: SnapshotFeatures) -> Figure:
    """Fig. 7: the three largest confidences of the encoder's output, avgpool and the last layer,
    a layer a row, as decadic logarithms."""
    layers = shown_layers(reading)
    figure = canvas.new_figure(canvas.WIDE, 0.5 + 2.1 * len(layers))
    grid = figure.subplots(len(layers), 3, squeeze=False)
    names = [f"log10 of the {place}" for place in ("1st", "2nd", "3rd")]
    for panels, layer in zip(grid, layers, strict=True):
        members, others = (side / np.log(10) for side in reading.scored(layer))
        draw_pairs(panels, members, others, names)
        panels[0].set_title(layer)
    canvas.legend(grid[0, 0])
    return figure


@canvas.drawn
def combined(reading: SnapshotFeatures) -> Figure:
    """Fig. 9: the combined features, and how the LDA that the known images fitted divides them.

    On its plane the classifier is undecided. A line shows where this plane cuts the two features of
    a plot while the third one has its mean; the last plot has the distances from the plane itself.
    """
    members, others = reading.scored("combined")
    model = fit_classifier("lda", *reading.known_features("combined"))
    figure = canvas.new_figure(canvas.WIDE, 5.8)
    grid = figure.subplots(2, 2)
    draw_pairs(grid.flat[:3], members, others, FEATURES)
    both = np.concatenate([members, others])
    for axes, pair in zip(grid.flat[:3], PAIRS, strict=True):
        _draw_line(axes, model, pair, both)
    _draw_distances(grid.flat[3], decide(model, members), decide(model, others))
    sizes = canvas.counts(len(members), len(others))
    figure.suptitle(f"Combined features ({sizes})", x=0.01, ha="left")
    canvas.legend(grid[0, 0])
    return figure


def _draw_line(axes: Axes, model: Pipeline, pair: tuple[int, int], both: FloatArray) -> None:
    """The line of no decision, where the third feature has its mean."""
    normal, offset = plane(model)
    slope, (third,) = normal[list(pair)], {0, 1, 2} - {*pair}
    if not slope.any():
        return
    limits = axes.get_xlim(), axes.get_ylim()
    point = (offset - normal[third] * both[:, third].mean()) * slope / (slope @ slope)
    along = np.array([-slope[1], slope[0]])
    axes.axline(
        point, point + along, color=canvas.INK, linewidth=1.4, linestyle="--", label=UNDECIDED
    )
    axes.set_xlim(*limits[0])
    axes.set_ylim(*limits[1])


def _draw_distances(axes: Axes, members: FloatArray, others: FloatArray) -> None:
    """Share of the images by their score under the classifier; over 0 it says member."""
    both = np.concatenate([members, others])
    edges = np.linspace(both.min(), max(both.max(), both.min() + 1e-9), 31).tolist()
    filled: dict[str, Any] = {"histtype": "stepfilled", "color": canvas.SKY, "alpha": 0.6}
    outlined: dict[str, Any] = {"histtype": "step", "color": canvas.MEMBER, "linewidth": 1.6}
    for side, look in ((others, filled), (members, outlined)):
        axes.hist(side, edges, weights=np.full(len(side), 100 / len(side)), **look)
    axes.axvline(0, color=canvas.INK, linewidth=1.4, linestyle="--")
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("score of the LDA (over 0: member)")
    axes.set_ylabel("% of images")


def plane(model: Pipeline) -> Plane:
    """(normal, offset) of the classifier's plane in the features' own units: it says member where
    `features @ normal > offset`.

    Args:
        model: a scaler and a linear classifier, as `fit_classifier` gives for `lda` and `lr`.
    """
    scaler, linear = model[0], model[-1]
    normal = linear.coef_[0] / scaler.scale_
    return normal, float(normal @ scaler.mean_ - linear.intercept_[0])
