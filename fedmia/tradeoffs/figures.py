"""The figure of a trade-off: what leaks against what use is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedmia.config.sweep import told
from fedmia.config.tradeoff import NONE
from fedmia.report.figures import canvas
from fedmia.report.rows import Interval
from fedmia.tradeoffs.choice import WITHIN
from fedmia.tradeoffs.rows import TradeoffReport, TradePoint
from fedmia.tradeoffs.tables import best_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = tuple[float, float]  # mean kNN, mean AUC of the best attack


@canvas.drawn
def draw(report: TradeoffReport) -> Figure | None:
    """Mean kNN across, mean AUC of each point's best attack up; None where nothing is known."""
    known = [(point, at) for point in report["points"] if (at := place(point)) is not None]
    if not known:
        return None
    figure, axes = canvas.one(8.5, 5.6)
    canvas.half_line(axes)
    _front(axes, [at for point, at in known if point["front"]])
    for i, name in enumerate(dict.fromkeys(point["defense"] for point, _ in known)):
        _curve(axes, name, i, [(p, at) for p, at in known if p["defense"] == name])
    undefended = report["points"][0]["knn"]["mean"]
    if undefended is not None:
        axes.axvline(
            (1 - WITHIN) * undefended, color=canvas.GREY, linewidth=1, linestyle=":", zorder=0,
            label="95 % of the undefended kNN",
        )  # fmt: skip
    axes.set_xlabel("weighted kNN accuracy (use)")
    axes.set_ylabel("AUC of the best attack (0.5: nothing told)")
    canvas.legend(axes)
    return figure


def place(point: TradePoint) -> Place | None:
    """Where a point stands, None where a number is not known."""
    best, knn = best_of(point), point["knn"]["mean"]
    auc = best["auc"]["mean"] if best else None
    return None if auc is None or knn is None else (knn, auc)


def _front(axes: Axes, places: Sequence[Place]) -> None:
    """The least AUC at each kNN or better."""
    across, up = zip(*sorted(places), strict=True)
    axes.step(
        across, up, where="pre", color=canvas.GREY, linewidth=1.2, zorder=1, label="Pareto front"
    )


def _curve(axes: Axes, name: str, i: int, held: Sequence[tuple[TradePoint, Place]]) -> None:
    """A defence from mild to strong, with the intervals of each point, in the i-th look."""
    bare = name == NONE
    look: dict[str, Any] = canvas.look(i - 1) | {"linestyle": "-"}
    if bare:
        look = {"color": canvas.INK, "marker": "*", "linestyle": "-"}
    across, up = zip(*(at for _, at in held), strict=True)
    label = "no defence" if bare else name
    axes.plot(across, up, **look, markersize=12 if bare else 7, linewidth=1.2, label=label)
    for point, (knn, auc) in held:
        best = best_of(point)
        _cross(
            axes, look["color"], knn, auc, point["knn"]["ci"], best["auc"]["ci"] if best else None
        )
        if point["option"]:
            axes.annotate(
                told(point["strength"]), (knn, auc), xytext=(5, 5), textcoords="offset points",
                fontsize=8, color=look["color"],
            )  # fmt: skip


def _cross(
    axes: Axes, colour: str, knn: float, auc: float, across: Interval | None, up: Interval | None
) -> None:
    if across:
        axes.plot(across, [auc] * 2, color=colour, linewidth=2.5, alpha=0.3)
    if up:
        axes.plot([knn] * 2, up, color=colour, linewidth=2.5, alpha=0.3)
