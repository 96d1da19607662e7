"""A trade-off: what defences stop at what price, from the sweep that it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import rich.table

from fedmia.config.sweep import format_grid_value
from fedmia.config.tradeoff import NONE, Tradeoff
from fedmia.records.privacy import MEANINGFUL
from fedmia.report.figures import canvas
from fedmia.report.format import DASH, estimate
from fedmia.report.tables import Table, TextCell
from fedmia.study import columns, formats
from fedmia.study.columns import Column, change, mean, models, number_over_cis, text_column
from fedmia.study.drawing import cross
from fedmia.study.engine import Study
from fedmia.study.points import group_by_key
from fedmia.study.view import StudyPage, mark, note_doubtful_verdicts, study_report
from fedmia.study.views import _trades
from fedmia.study.views._choice import COSTS, WITHIN, choose, sentence
from fedmia.study.views._trades import attack_of, best_of, place
from fedmia.study.views.sweep import SweepView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_GUARANTEE, DAGGER = "no meaningful guarantee", "†"


def _tpr(point: Any) -> str:
    return columns.over_models(best["tpr"]) if (best := best_of(point)) else DASH


def _auc(row: Any) -> TextCell:
    if row is None or row["auc"]["mean"] is None:
        return TextCell(DASH)
    return number_over_cis(row["auc"]["mean"], row["auc"]["ci"], row["auc_ci_simultaneous"])


NAME = Column("defence", lambda p: p["label"] + mark(p["verdicts"]))
POINTS = (
    Column("defence", lambda p: TextCell(p["label"], ("on the Pareto front",) * p["front"])),
    Column("epsilon at most", lambda p: epsilon(p)), text_column("best attack", "best"),
    Column(TextCell("mean AUC", ("95 %, simultaneous",)), lambda p: _auc(best_of(p))),
    change("AUC minus undefended, 95 %", "auc_change"), Column("TPR at 1 % FPR, 95 %", _tpr),
    mean("weighted kNN, 95 %", "knn"), change("kNN minus untrained", "knn_over_untrained"),
    change("kNN minus undefended, 95 %", "knn_change"), mean("linear probe, 95 %", "linear"),
    Column("verdicts", lambda p: columns.verdicts(p["verdicts"])),
    Column(columns.MODELS, lambda p: models_cell(p)),
)  # fmt: skip
GROUPS = (
    text_column("defence", "label"), text_column("best attack", "best"),
    mean("mean AUC of defended clients, 95 %", "defended"),
    mean("mean AUC of undefended clients, 95 %", "undefended"), change("difference", "difference"),
    models("difference"),
)  # fmt: skip


@dataclass(frozen=True)
class TradeoffView(StudyPage):
    """Each defence at each strength: what leaks, what use is left, which leaks least."""

    file: ClassVar[str] = "tradeoff"
    keeps_json: ClassVar[bool] = False
    beside: ClassVar[Mapping[str, str]] = {"tradeoff": "tradeoff.png"}
    captions: ClassVar[Mapping[str, str]] = {
        "tradeoff": "Utility and privacy: down and to the right is better. A line joins the "
        "points of one defence, labelled with their strength. Bars: 95 % intervals between "
        "models, for each mean alone; an interval of no information, 0 to 1, has no bar."
    }

    def report(self, study: Study) -> Any:
        tradeoff: Tradeoff = study.settings
        swept, rows = SweepView(sweep=tradeoff.sweep).report(study), _trades.rows(tradeoff, study)
        by_point = [
            [r for r in rows if (r["defense"], r["strength"]) == (t.defense, t.strength)]
            for t in tradeoff.trades
        ]
        points = _trades.points(tradeoff.trades, swept["points"], by_point)
        cells, reports = study.by_point(), study.reports()
        for i, point in enumerate(points):
            own = cells[i * tradeoff.seeds : (i + 1) * tradeoff.seeds]
            by_seed = {cell.seed: reports[cell.key] for cell in own if cell.key in reports}
            point["groups"] = _trades.groups(by_seed, point["best"])
        choice = choose(points, by_point)
        before = {
            "rows": rows, "points": points, "choice": choice, "family": _trades.family(points),
        }  # fmt: skip
        return study_report(
            study, sentence(points, choice), before, {}, notes(swept), tradeoff.tree()
        )

    def tables(self, report: Any) -> dict[str, Table]:
        points: Sequence[Any] = report["points"]
        least = report["choice"]["least"]
        names = dict.fromkeys(row["attack"] for row in report["rows"])
        attacks = [
            Column(name, lambda point, name=name: _auc(attack_of(point, name)))  # type: ignore[misc]
            for name in names
        ]
        return {
            "points": columns.table(POINTS, points, lambda p: "leaks" * (p["label"] == least)),
            "attacks": columns.table([NAME, *attacks], points),
            "groups": columns.table(GROUPS, [{**p, **p["groups"]} for p in points if p["groups"]]),
        }

    def draw(self, report: Any) -> dict[str, bytes | None]:
        return {"tradeoff": draw(report)}

    def values(self, report: Any, out: Path) -> dict[str, Any]:
        front = [point["label"] for point in report["points"] if point["front"]]
        return {"lost": list(lost(report)), "front": front, "costs": COSTS}

    def terminal(self, report: Any) -> Any:
        """One line a point; those on the front have a star."""
        table = rich.table.Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        names = [_short_label(point) + " *" * point["front"] for point in report["points"]]
        longest = max((len(word) for name in names for word in name.split()), default=0)
        table.add_column("defence", min_width=longest, overflow="fold")
        for head in ("best\nattack", "mean AUC, simul-\ntaneous 95 %", "mean kNN, 95 %"):
            table.add_column(head, no_wrap=True)
        for head in ("epsilon", "models"):
            table.add_column(head, justify="right", overflow="fold")
        for point, name in zip(report["points"], names, strict=True):
            best = best_of(point)
            table.add_row(
                name,
                point["best"] or DASH,
                estimate(best["auc"]["mean"], best["auc_ci_simultaneous"]) if best else DASH,
                estimate(point["knn"]["mean"], point["knn"]["ci"]),
                epsilon(point).replace(f", {NO_GUARANTEE}", DAGGER),
                models_cell(point),
            )
        table.caption = f"* on the Pareto front   {DAGGER} {NO_GUARANTEE}"
        if report["choice"]["least"] is not None:
            table.caption += f"\n{COSTS}"
        for note in note_doubtful_verdicts(report["points"], "Runs"):
            table.caption += f"\n{note}"
        table.caption_justify = "left"
        return table


def notes(swept: formats.SweepReport) -> list[str]:
    """What a reader of the means must know."""
    lines = list(swept["notes"])
    if any("collapsed" in point["verdicts"] for point in swept["points"]):
        lines.append(
            "A collapsed encoder gives all images one output: it leaks little and is of no use."
        )
    return lines


def lost(report: Any) -> Iterator[tuple[str, str]]:
    """(who, why) of every row without an AUC; of equal reasons at one point one entry."""
    labels = {(p["defense"], p["strength"]): p["label"] for p in report["points"]}
    noted = (
        ((labels[row["defense"], row["strength"]], row["note"]), row)
        for row in report["rows"]
        if row["note"]
    )
    for (label, why), rows in group_by_key(noted).items():
        attacks = ", ".join(dict.fromkeys(row["attack"] for row in rows))
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(row["seed"] for row in rows))
        yield f"{label} ({attacks}; seed {seeds})", why


def _short_label(point: Any) -> str:
    """The defence and its strength without the option's name, which fills a terminal's line."""
    name = point["label"]
    if point["strength"] is not None:
        name = f"{point['defense']} {format_grid_value(point['strength'])}"
    return name + mark(point["verdicts"])


def epsilon(point: Any) -> str:
    """`8.1 for one image, guaranteed`, `1e+06 for one client, no meaningful guarantee`, a dash."""
    value = point["epsilon"]
    if point["standing"] is None:
        return DASH
    text = "none" if value is None else f"{value:.3g}"
    text += f" for one {point['unit']}" if point["unit"] else ""
    little = value is None or value > MEANINGFUL
    return f"{text}, {NO_GUARANTEE if little else point['standing']}"


def models_cell(point: Any) -> str:
    """How many models there are, and how many failed."""
    return f"{point['finished']}" + (f", {point['failed']} failed" if point["failed"] else "")


# -- the figure ------------------------------------------------------------------------------------


@canvas.drawn
def draw(report: Any) -> Figure | None:
    """Mean kNN across, mean AUC of each point's best attack up; None where nothing is known."""
    places = [(point, place(point)) for point in report["points"]]
    known: list[Any] = [(point, at) for point, at in places if None not in at]
    if not known:
        return None
    figure, axes = canvas.one(8.5, 5.6)
    canvas.half_line(axes)
    across, up = zip(*sorted(at for point, at in known if point["front"]), strict=True)
    look: dict[str, Any] = {"color": canvas.GREY, "linewidth": 1.2, "zorder": 1}
    axes.step(across, up, where="pre", **look, label="Pareto front")  # least AUC at a kNN or better
    for i, name in enumerate(dict.fromkeys(point["defense"] for point, _ in known)):
        _curve(axes, name, i, [(p, at) for p, at in known if p["defense"] == name])
    undefended = report["points"][0]["knn"]["mean"]
    if undefended is not None:
        axes.axvline(
            (1 - WITHIN) * undefended, color=canvas.GREY, linewidth=1, linestyle=":", zorder=0,
            label="95 % of the undefended kNN",
        )  # fmt: skip
    axes.set_xlabel("weighted kNN accuracy (utility)")
    axes.set_ylabel("AUC of the best attack (0.5: no leakage)")
    canvas.legend(axes)
    return figure


def _informative(ci: Any) -> Any:
    """An interval that says something; None of one from 0 to 1, whose bar would cross them all."""
    return None if ci is None or ci[1] - ci[0] > 0.99 else ci


def _beside(axes: Axes, at: tuple[float, float]) -> tuple[float, float]:
    """Where a label stands, in points from its own point: under it where another is nearby."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    wide, tall = 0.06 * (right - left), 0.05 * (high - low)
    near = sum(
        abs(text.xy[0] - at[0]) < wide and abs(text.xy[1] - at[1]) < tall
        for text in axes.texts
        if hasattr(text, "xy")
    )
    return (5.0, -13.0 - 10.0 * (near - 1)) if near else (5.0, 5.0)


def _curve(
    axes: Axes, name: str, i: int, points: Sequence[tuple[Any, tuple[float, float]]]
) -> None:
    """A defence from mild to strong, with the intervals of each point, in the i-th look."""
    bare = name == NONE
    look: dict[str, Any] = canvas.look(i - 1) | {"linestyle": "-"}
    if bare:
        look = {"color": canvas.INK, "marker": "*", "linestyle": "-"}
    across, up = zip(*(at for _, at in points), strict=True)
    label = "no defence" if bare else name
    axes.plot(across, up, **look, markersize=12 if bare else 7, linewidth=1.2, label=label)
    for point, at in points:
        best, bars = best_of(point), {"color": look["color"], "linewidth": 2.5, "alpha": 0.3}
        up = _informative(best["auc"]["ci"] if best else None)
        cross(axes, at, _informative(point["knn"]["ci"]), up, **bars)
        if point["option"]:
            axes.annotate(
                format_grid_value(point["strength"]), at, xytext=_beside(axes, at),
                textcoords="offset points",
                fontsize=8, color=look["color"],
            )  # fmt: skip
