"""A trade-off: what each defence stops at each strength, at what price, and which leaks least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from fedmia.report.figures import canvas
from fedmia.report.tables import TextCell
from fedmia.report.words.numbers import DASH
from fedmia.settings.commands.defense_points import NONE
from fedmia.settings.commands.study import format_grid_value
from fedmia.statistics.spread import clip_interval, t_interval
from fedmia.study import guides, words
from fedmia.study.cells import CellState
from fedmia.study.columns import Cell, columns_of, estimate, inside
from fedmia.study.drawing import cross, spread_labels
from fedmia.study.points import change, group_by_key, known, largest_epsilon, over_models
from fedmia.study.result import StudyResult
from fedmia.study.rows import DIGITS, AttackPointRow, DefencePointRow, OverModels, SeedValues
from fedmia.study.view import Drawing, Section, StudyView
from fedmia.study.views._choice import WITHIN, at_least_half, choose
from fedmia.study.views.sweep import every_attack

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TradeoffView(StudyView):
    """Each defence at each strength: what leaks, what use is left, which leaks least."""

    title: ClassVar[str] = "Defences: leakage and utility"
    captions: ClassVar[Mapping[str, str]] = {
        "tradeoff": "Utility and privacy: down and to the right is better. A line joins the "
        "points of one defence, labelled with their strength. Bars: 95 % intervals between "
        "models, for each mean alone; an interval of no information, 0 to 1, has no bar."
    }

    def sections(self, study: StudyResult) -> list[Section]:
        points = choose(point_rows(study))
        names = dict.fromkeys(name for point in points for name in point.attacks)
        aucs = [row.auc for point in points for row in point.attacks.values()]
        return [
            Section(
                "Privacy and utility",
                {
                    **columns_of(DefencePointRow, "point", "best"),
                    **inside(DefencePointRow, "leak", "auc"),
                    **columns_of(
                        DefencePointRow, "knn", "guarantee", "front", "verdicts", "auc_change"
                    ),
                    **inside(DefencePointRow, "leak", "tpr"),
                    **columns_of(
                        DefencePointRow, "knn_over_untrained", "knn_change", "linear", "finished",
                        "failed",
                    ),
                },
                points,
                ("tradeoff",),
                5,
                guides.TRADEOFF,
                words.limits_together("mean AUC", aucs),
                lambda point: bool(point.chosen),
            ),
            Section(
                "Every attack",
                columns_of(DefencePointRow, "point") | dict(map(_attack_column, names)),
                points,
                about=guides.EVERY_ATTACK,
            ),
            Section(
                "Clients that defend themselves, and their neighbours",
                columns_of(
                    DefencePointRow, "point", "best", "defended", "undefended", "group_difference"
                )
                | inside(DefencePointRow, "group_difference", "n"),
                [point for point in points if point.group_difference is not None],
                about=guides.GROUPS,
            ),
        ]  # fmt: skip

    def sentence(self, study: StudyResult) -> str:
        return words.defences_sentence(choose(point_rows(study)))

    def notes(self, study: StudyResult) -> list[str]:
        chosen = any(point.choice for point in choose(point_rows(study)))
        return [words.COSTS] if chosen else []

    def figures(self, study: StudyResult) -> dict[str, Drawing]:
        return {"tradeoff": lambda: draw(point_rows(study))}


def _attack_column(name: str) -> tuple[TextCell, Cell]:
    """The column of an attack in a table of points."""

    def cell(point: DefencePointRow, digits: int | None = None) -> str | TextCell:
        row = point.attacks.get(name)
        return DASH if row is None else estimate(row.auc, DIGITS if digits is None else digits)

    return TextCell(name, title=f"AUC of {name}: mean over models, with its intervals"), cell


def point_rows(study: StudyResult) -> list[DefencePointRow]:
    """One row a defence and strength, the undefended federation first, with intervals of all
    attacks at all points that hold together."""
    attacks = [row for row in every_attack(study) if row.by_seed]
    family = sum(row.auc.ci is not None for row in attacks)
    together = partial(t_interval, together=family)
    attacks = [
        replace(row, auc=replace(row.auc, ci_simultaneous=clip_interval(together(values))))
        for row in attacks
        for values in [known(row.by_seed.values())]
    ]
    at_point = group_by_key((row.point, row) for row in attacks)
    points = [_point(study, point, at_point.get(point, [])) for point in study.by_point()]
    bare = points[0]
    return [
        replace(
            point,
            front=not any(beats(other, point) for other in points),
            auc_change=None if point is bare else change(point.leak.by_seed, bare.leak.by_seed),
            knn_change=None if point is bare else change(point.knn_by_seed, bare.knn_by_seed),
        )
        for point in points
    ]


def _point(study: StudyResult, point: str, attacks: Sequence[AttackPointRow]) -> DefencePointRow:
    """What a point is, leaks and is of use for."""
    cells = study.by_point()[point]
    grid = cells[0].grid
    counted = [row for row in attacks if row.auc.mean is not None]
    leak = max(counted, key=lambda row: row.auc.mean or 0.0, default=_nothing(point, attacks))
    knn, linear = (_use(study, cells, probe, leak.attack) for probe in ("knn", "linear"))
    untrained = study.values("knn", subject="utility", control="untrained").get((point,), {})
    kind = "strategy" if "strategy" in grid else "defense"
    spent = largest_epsilon([cell.epsilon for cell in cells if cell.state == "finished"]) or {}
    epsilon, standing, unit = (spent.get(name) for name in ("value", "standing", "unit"))
    return study.point_row(
        DefencePointRow,
        point,
        defense=grid[kind] or NONE,
        strength=next((v for path, v in grid.items() if path.startswith(f"{kind}.")), None),
        epsilon=epsilon,
        standing=standing,
        unit=unit,
        guarantee=words.guarantee(epsilon, standing, unit),
        attacks={str(row.attack): row for row in attacks},
        best=leak.attack,
        leak=leak,
        knn=over_models(knn.values()),
        knn_by_seed=knn,
        linear=over_models(linear.values()),
        knn_over_untrained=change(knn, untrained),
        **groups(study, point, leak.attack),
        **dict.fromkeys(("auc_change", "knn_change", "spare")),
        **dict.fromkeys(("front", "candidate", "chosen"), False),
        choice="",
    )


def _nothing(point: str, attacks: Sequence[AttackPointRow]) -> AttackPointRow:
    """What leaks where no attack has a number: all of its runs are void, or there is none."""
    if attacks:
        return replace(attacks[0], attack=None)
    none = over_models(())
    return AttackPointRow(
        point=point, attack=None, auc=none, by_seed={}, tpr=none, verdicts={}, knn=none,
        choices={}, controls={}, last=None, difference=None,
    )  # fmt: skip


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


def groups(study: StudyResult, point: str, attack: str | None) -> dict[str, OverModels | None]:
    """What clients that defend themselves leak and those that do not, over the models of a point.

    Args:
        study: with the table.
        point: of the study.
        attack: its best one; None: it has none.

    Returns:
        The fields of the row: AUC of either side and their difference; each None where one of them
        has no AUC in any.
    """
    ours, theirs = (
        study.values("auc", "attack", subject=f"group/{group}").get((point, attack), {})
        for group in ("defended", "undefended")
    )
    if not (ours and theirs):
        return dict.fromkeys(("defended", "undefended", "group_difference"))
    return {
        "defended": over_models(ours.values()),
        "undefended": over_models(theirs.values()),
        "group_difference": change(ours, theirs),
    }


def place(point: DefencePointRow) -> tuple[float | None, float | None]:
    """Mean kNN, and mean AUC of the best attack."""
    return point.knn.mean, point.leak.auc.mean


def beats(other: DefencePointRow, one: DefencePointRow) -> bool:
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


@canvas.apply_style
def draw(points: Sequence[DefencePointRow]) -> Figure | None:
    """Mean kNN across, mean AUC of each point's best attack up; None where nothing is known."""
    placed: list[Any] = [(one, at) for one in points if None not in (at := place(one))]
    if not placed:
        return None
    figure, axes = canvas.one(canvas.COLUMN, 3.5)
    canvas.half_line(axes)
    across, up = zip(*sorted(at for point, at in placed if point.front), strict=True)
    look: dict[str, Any] = {"color": canvas.GREY, "linewidth": 1.2, "zorder": 1}
    axes.step(across, up, where="pre", **look, label="Pareto front")  # least AUC at a kNN or better
    curves = group_by_key((point.defense, (point, at)) for point, at in placed)
    strengths = []
    for i, (name, own) in enumerate(curves.items()):
        look = canvas.look(i - 1) | {"linestyle": "-", "markersize": 5}
        if name == NONE:
            look |= {"color": canvas.INK, "marker": "*", "markersize": 8}
        label = points[0].point if name == NONE else name
        axes.plot(*zip(*(at for _, at in own), strict=True), **look, label=label)
        for point, at in own:
            bars = {"color": look["color"], "linewidth": 2.5, "alpha": 0.3}
            cis = point.knn.ci, point.leak.auc.ci
            cross(axes, at, *(ci if ci and ci[1] - ci[0] < 0.99 else None for ci in cis), **bars)
            if point.strength is not None:
                near: Any = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 7}
                text = format_grid_value(point.strength)
                strengths.append(axes.annotate(text, at, **near, color=look["color"]))
    if (undefended := points[0].knn.mean) is not None:
        axes.axvline(
            (1 - WITHIN) * undefended,
            color=canvas.GREY,
            linewidth=1,
            linestyle=":",
            zorder=0,
            label="95 % of the undefended kNN",
        )
    for point in points:
        if point.void:
            axes.plot([], [], " ", label=f"{point.point}: {point.void}")
    axes.set_xlabel("weighted kNN accuracy (utility)")
    axes.set_ylabel("AUC of the best attack\n(0.5: no leakage)")
    canvas.legend(axes)
    spread_labels(figure, strengths)
    return figure
