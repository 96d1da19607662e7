"""A trade-off: what each defence stops at each strength, at what price, and which leaks least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fedmia.config.defense_points import NONE, UNDEFENDED
from fedmia.config.study import format_grid_value
from fedmia.report.figures import canvas
from fedmia.report.words.numbers import DASH
from fedmia.statistics.spread import clip_interval, t_interval
from fedmia.study.cells import CellState
from fedmia.study.columns import heads
from fedmia.study.drawing import cross
from fedmia.study.points import (
    SeedValues,
    change,
    group_by_key,
    known,
    largest_epsilon,
    over_models,
)
from fedmia.study.result import StudyResult
from fedmia.study.view import Drawing, Section, View
from fedmia.study.views._choice import (
    COSTS,
    WITHIN,
    at_least_half,
    choose,
    means_something,
    sentence,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_GUARANTEE = "no meaningful guarantee"
NO_LEAK: Any = {"attack": None, "by_seed": {}, "auc": {**over_models(()), "ci_simultaneous": None}}
POINTS = heads(
    "name best leak.auc knn guarantee pareto verdicts +auc_change leak.tpr +knn_over_untrained "
    "+knn_change linear finished failed",
    {
        "name": "defence",
        "best": "best attack",
        "leak.auc": "mean AUC",
        "guarantee": "epsilon at most",
        "pareto": "Pareto front",
        "+auc_change": "AUC minus undefended, 95 %",
        "+knn_over_untrained": "kNN minus untrained",
        "+knn_change": "kNN minus undefended, 95 %",
    },
)
GROUPS = {
    "name": "defence",
    "best": "best attack",
    "defended": "mean AUC of defended clients, 95 %",
    "undefended": "mean AUC of undefended clients, 95 %",
    "+difference": "difference",
    "difference.n": "models",
}


class TradeoffView(View):
    """Each defence at each strength: what leaks, what use is left, which leaks least."""

    title: ClassVar[str] = "Defences: leakage and utility"
    captions: ClassVar[Mapping[str, str]] = {
        "tradeoff": "Utility and privacy: down and to the right is better. A line joins the "
        "points of one defence, labelled with their strength. Bars: 95 % intervals between "
        "models, for each mean alone; an interval of no information, 0 to 1, has no bar."
    }

    def sections(self, study: StudyResult) -> list[Section]:
        points = point_rows(study)
        chosen = choose(points)["chosen"]
        names = dict.fromkeys(name for point in points for name in point["attacks"])
        lines = [
            {
                **point,
                "guarantee": epsilon(point),
                "pareto": "on it" * point["front"],
                "css": "leaks" * (point["point"] in chosen),
            }
            for point in points
        ]
        groups = [{**point, **point["groups"]} for point in points if point["groups"]]
        attacks = {"name": "defence", **{f"attacks.{name}.auc": name for name in names}}
        return [
            Section("Privacy and utility", POINTS, lines, ("tradeoff",), 5),
            Section("Every attack", attacks, points),
            Section("Clients that defend themselves, and their neighbours", GROUPS, groups),
        ]

    def sentence(self, study: StudyResult) -> str:
        points = point_rows(study)
        return sentence(points, choose(points))

    def notes(self, study: StudyResult) -> list[str]:
        return [] if choose(point_rows(study))["least"] is None else [COSTS]

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        return {"tradeoff": lambda: draw(point_rows(study))}


def point_rows(study: StudyResult) -> list[dict[str, Any]]:
    """One row a defence and strength, the undefended federation first, with intervals of all
    attacks at all points that hold together."""
    aucs = study.values("auc", "attack")
    rates = study.values("tpr_at_fpr", "attack", target_fpr=0.01)
    attacks = study.rows(aucs, "attack", auc=aucs, tpr=rates)
    family = sum(row["auc"]["ci"] is not None for row in attacks)
    for row, by_seed in zip(attacks, aucs.values(), strict=True):
        together = clip_interval(t_interval(known(by_seed.values()), family))
        row["by_seed"], row["auc"]["ci_simultaneous"] = by_seed, together
    at_point = group_by_key((row["point"], row) for row in attacks)
    points = study.rows(zip(study.by_point()))
    for point in points:
        point |= _point(study, point["point"], at_point.get(point["point"], []))
    for point in points:
        point["front"] = not any(beats(other, point) for other in points)
        point["auc_change"] = point["knn_change"] = None
    bare = points[0]
    for point in points[1:]:
        point["auc_change"] = change(point["leak"]["by_seed"], bare["leak"]["by_seed"])
        point["knn_change"] = change(point["knn_by_seed"], bare["knn_by_seed"])
    return points


def _point(study: StudyResult, point: str, attacks: Sequence[Any]) -> dict[str, Any]:
    """What a point is, leaks and is of use for."""
    cells = study.by_point()[point]
    grid = cells[0].grid
    counted = [row for row in attacks if row["auc"]["mean"] is not None]
    nothing = {**attacks[0], "attack": None} if attacks else NO_LEAK  # all of its runs are void
    leak = max(counted, key=lambda row: row["auc"]["mean"], default=nothing)
    knn, linear = (_use(study, cells, probe, leak["attack"]) for probe in ("knn", "linear"))
    untrained = study.values("knn", subject="utility", control="untrained").get((point,), {})
    kind = "strategy" if "strategy" in grid else "defense"
    spent = largest_epsilon([cell.epsilon for cell in cells if cell.state == "finished"]) or {}
    return {
        "defense": grid[kind] or NONE,
        "strength": next((v for path, v in grid.items() if path.startswith(f"{kind}.")), None),
        "epsilon": spent.get("value"),
        "standing": spent.get("standing"),
        "unit": spent.get("unit"),
        "attacks": {row["attack"]: row for row in attacks},
        "leak": leak,
        "best": leak["attack"],
        "knn": over_models(knn.values()),
        "knn_by_seed": knn,
        "linear": over_models(linear.values()),
        "knn_over_untrained": change(knn, untrained),
        "groups": groups(study, point, leak["attack"]),
    }


def _use(
    study: StudyResult, cells: Sequence[CellState], probe: str, attack: str | None
) -> SeedValues:
    """Accuracy of a probe by seed. An active attack reads the models of the attacked rounds, and is
    seen beside their use."""
    before, after = (
        study.values(probe, subject=subject).get((cells[0].point,), {})
        for subject in ("utility", "utility/after_attack")
    )
    acted = {cell.seed for cell in cells if attack in cell.under_attack}
    return {**before, **{seed: value for seed, value in after.items() if seed in acted}}


def groups(study: StudyResult, point: str, attack: str | None) -> dict[str, Any] | None:
    """What clients that defend themselves leak and those that do not, over the models of a point.

    Args:
        study: with the table.
        point: of the study.
        attack: its best one; None: it has none.

    Returns:
        AUC of either side and their difference; None where one of them has no AUC in any.
    """
    ours, theirs = (
        study.values("auc", "attack", subject=f"group/{group}").get((point, attack), {})
        for group in ("defended", "undefended")
    )
    both = {"defended": over_models(ours.values()), "undefended": over_models(theirs.values())}
    return {**both, "difference": change(ours, theirs)} if ours and theirs else None


def place(point: Any) -> tuple[float | None, float | None]:
    """Mean kNN, and mean AUC of the best attack."""
    return point["knn"]["mean"], point["leak"]["auc"]["mean"]


def beats(other: Any, one: Any) -> bool:
    """Whether a point keeps more use or leaks less than another, and does no worse in either.

    Args:
        other: the point that may be better.
        one: the point that may be worse; without numbers it is beaten by itself.

    Returns:
        True where it is better.
    """
    (knn, auc), (worse_knn, worse_auc) = place(other), place(one)
    if worse_auc is None or worse_knn is None:
        return True
    if auc is None or knn is None:
        return False
    auc, worse_auc = at_least_half(auc), at_least_half(worse_auc)
    return auc <= worse_auc and knn >= worse_knn and (auc, knn) != (worse_auc, worse_knn)


def epsilon(point: Any) -> str:
    """`8.1 for one image, guaranteed`, `1e+06 for one client, no meaningful guarantee`, a dash."""
    value = point["epsilon"]
    if point["standing"] is None:
        return DASH
    text = "none" if value is None else f"{value:.3g}"
    text += f" for one {point['unit']}" if point["unit"] else ""
    return f"{text}, {point['standing'] if means_something(value) else NO_GUARANTEE}"


@canvas.apply_style
def draw(points: Sequence[Any]) -> Figure | None:
    """Mean kNN across, mean AUC of each point's best attack up; None where nothing is known."""
    placed: list[Any] = [(one, at) for one in points if None not in (at := place(one))]
    if not placed:
        return None
    figure, axes = canvas.one(canvas.COLUMN, 3.5)
    canvas.half_line(axes)
    across, up = zip(*sorted(at for point, at in placed if point["front"]), strict=True)
    look: dict[str, Any] = {"color": canvas.GREY, "linewidth": 1.2, "zorder": 1}
    axes.step(across, up, where="pre", **look, label="Pareto front")  # least AUC at a kNN or better
    curves = group_by_key((point["defense"], (point, at)) for point, at in placed)
    for i, (name, own) in enumerate(curves.items()):
        look = canvas.look(i - 1) | {"linestyle": "-", "markersize": 5}
        if name == NONE:
            look |= {"color": canvas.INK, "marker": "*", "markersize": 8}
        label = UNDEFENDED if name == NONE else name
        axes.plot(*zip(*(at for _, at in own), strict=True), **look, label=label)
        for point, at in own:
            bars = {"color": look["color"], "linewidth": 2.5, "alpha": 0.3}
            cis = point["knn"]["ci"], point["leak"]["auc"]["ci"]
            cross(axes, at, *(ci if ci and ci[1] - ci[0] < 0.99 else None for ci in cis), **bars)
            if point["strength"] is not None:
                near: Any = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 7}
                text = format_grid_value(point["strength"])
                axes.annotate(text, at, **near, color=look["color"])
    if (undefended := points[0]["knn"]["mean"]) is not None:
        axes.axvline(
            (1 - WITHIN) * undefended,
            color=canvas.GREY,
            linewidth=1,
            linestyle=":",
            zorder=0,
            label="95 % of the undefended kNN",
        )
    for point in points:
        if point["void"]:
            axes.plot([], [], " ", label=f"{point['name']}: {point['void']}")
    axes.set_xlabel("weighted kNN accuracy (utility)")
    axes.set_ylabel("AUC of the best attack\n(0.5: no leakage)")
    canvas.legend(axes)
    return figure
