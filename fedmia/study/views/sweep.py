"""A sweep: every point of its grid over the models, and each point beside its neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from rich.console import Console

from fedmia.config.sweep import Sweep, format_grid_value, label, tree_key
from fedmia.records.rows import Report, control_sets
from fedmia.report.format import DASH, control_of, number
from fedmia.report.tables import Table, TextCell
from fedmia.study import columns, formats
from fedmia.study.columns import (
    DIGITS,
    Column,
    change,
    count,
    decimal,
    ends,
    mean,
    models,
    text_column,
)
from fedmia.study.drawing import forest
from fedmia.study.engine import Study
from fedmia.study.points import differences, group_by_key, group_by_point, point_rows
from fedmia.study.view import (
    StudyPage,
    View,
    mark,
    note_doubtful_verdicts,
    note_left_out,
    study_report,
)

MAIN = ("attacks", "roc", "rounds")  # figures of a run, the first that it has stands for it
MEASURES = {"auc": "AUC", "knn": "weighted kNN", "linear": "linear probe",
            "knn_after_attack": "kNN after the attack"}  # fmt: skip
NONE = {"mean": None}
Known = list[tuple[str, float]]  # names of values that are known, and these
TESTED = (decimal("p", "p"), decimal("p, Holm", "p_holm"))
PAIRS = (
    text_column("attack", "attack"), text_column("control", "control"),
    change("mean difference of AUCs, 95 %", "difference"), ends("difference"), *TESTED,
    models("difference"),
)  # fmt: skip
SETS = (
    text_column("attack", "attack"), text_column("score of a set", "judged"),
    text_column("images a set", "size"),
    mean("mean AUC, 95 %", "auc"), ends("auc"), change("minus its control, 95 %", "difference"),
    *TESTED, models("auc"),
)  # fmt: skip
POINTS = (
    *(mean(f"{name}, 95 %", key) for key, name in list(MEASURES.items())[1:]),
    Column("verdicts", lambda row: columns.verdicts(row["verdicts"])),
    count(columns.MODELS, "finished"), count("failed", "failed"),
)  # fmt: skip
DIFFERENCES = (
    text_column("option", "option"), text_column("from", "from"), text_column("to", "to"),
    Column("where", lambda row: label(row["others"]) or DASH),
    Column("of", lambda row: MEASURES[row["measure"]]), text_column("attack", "attack"),
    change("mean difference, 95 %", "difference"), models("difference"),
)  # fmt: skip


@dataclass(frozen=True)
class SweepView(StudyPage):
    """Every point of a grid over its models, and points that differ in one option.

    Attributes:
        sweep: what was asked, where it is a part of the study's settings.
        views: others by name, each a section of the page.
    """

    file: ClassVar[str] = "sweep"
    captions: ClassVar[Mapping[str, str]] = {
        "attacks": "AUC of each attack at each point of the grid: one dot for each model, with the "
        "mean and its 95 % interval between models.",
        "pairs": "AUC that each attack adds to its paired control: one dot for each model, with "
        "the mean and its 95 % interval between models.",
    }

    sweep: Sweep | None = None
    views: Mapping[str, View] = field(default_factory=dict)

    def report(self, study: Study) -> formats.SweepReport:
        sweep = self.sweep or study.settings
        cells: list[Any] = [
            study.state(cell, grid=dict(cell.grid)) | {"results": results_of(study, cell.key)}
            for cell in study.by_point()
        ]
        sections = {name: view.report(study) for name, view in self.views.items()}
        points = point_rows(cells)
        after = {
            "cells": cells, "points": points, "differences": list(differences(cells)),
            **({"views": sections} if sections else {}),
        }  # fmt: skip
        tree = sweep.tree()
        return study_report(  # type: ignore[no-any-return]
            study, sentence(cells), {"grid": tree["grid"]}, after,
            notes(cells, sweep) + note_doubtful_verdicts(points, "Runs"), tree,
        )  # fmt: skip

    def tables(self, report: formats.SweepReport) -> dict[str, Table]:
        places = [
            Column(path, lambda row, path=path: _place(row["grid"], path))  # type: ignore[misc]
            for path in varied(report)
        ]

        def listed(name: str) -> list[Any]:
            points: Sequence[Any] = report["points"]
            key = "name" if name == "attacks" else "attack"
            return [
                {**row, key: row[key] + mark(point["verdicts"]), "grid": point["grid"]}
                for point in points for row in point[name]
            ]  # fmt: skip

        def marked(row: Any, end: str) -> str:
            grid = tree_key({**row["others"], row["option"]: row[end]})
            return format_grid_value(row[end]) + marks[grid]

        marks = {tree_key(point["grid"]): mark(point["verdicts"]) for point in report["points"]}
        changes = [
            {**row, "from": marked(row, "first"), "to": marked(row, "second")}
            for row in report["differences"]
        ]

        return {
            "attacks": columns.table([*places, *attacks(report)], listed("attacks")),
            "pairs": columns.table([*places, *PAIRS], listed("pairs")),
            "sets": columns.table([*places, *SETS], listed("sets")),
            "points": columns.table([*places, *POINTS], report["points"]),
            "differences": columns.table(DIFFERENCES, changes),
        }

    def draw(self, report: formats.SweepReport) -> dict[str, bytes | None]:
        cells = report["cells"]
        return {
            "attacks": forest(_lines(cells, _aucs), "AUC (0.5: no leakage)", 0.5, 0.0),
            "pairs": forest(_lines(cells, _pairs), "AUC minus AUC of the paired control", 0.0),
        }

    def more(self, report: formats.SweepReport) -> Callable[[Console], None]:
        """The runs that failed, what the mark says, and the sentence of each section."""

        def lines(console: Console) -> None:
            super(SweepView, self).more(report)(console)
            for note in note_doubtful_verdicts(report["points"], "Runs"):
                console.print(note, highlight=False, markup=False, soft_wrap=True)
            for own in report.get("views", {}).values():
                console.print(own["sentence"], highlight=False, markup=False, soft_wrap=True)

        return lines

    def values(self, report: formats.SweepReport, out: Path) -> dict[str, Any]:
        sections = report.get("views", {})
        return {
            "over": ", ".join(varied(report)) or "seeds",
            "cards": [_card(cell, out) for cell in report["cells"] if cell["path"] is not None],
            "views": [view.section(sections[name]) for name, view in self.views.items()],
        }

    def terminal(self, report: formats.SweepReport) -> Any:
        """One line a point and attack, most leaking attack of each point first."""
        lines: list[Any] = []
        for point in report["points"]:
            ordered = sorted(point["attacks"], key=lambda r: -(r["auc"]["mean"] or 0.0))
            rows = [(r["name"], columns.over_models(r["auc"]), r["auc"]["n"]) for r in ordered]
            for row in point["pairs"]:
                less = columns.signed(row["difference"])
                rows.append((_pair(row), less, row["difference"]["n"]))
            leaks = point["verdicts"].get("leaks", 0)
            place = (label(point["grid"]) or DASH) + mark(point["verdicts"])
            lines += [(place, name, value, str(n), str(leaks)) for name, value, n in rows]
        heads = ("mean AUC, 95 %\nbetween models", "models", "leak")
        return columns.screen(("point", "attack"), heads, lines, once=(0, 4))


def sentence(cells: Sequence[formats.CellRow]) -> str:
    """How many runs are finished, and how many of them leak."""
    results = [cell["results"] for cell in cells if cell["results"] is not None]
    codes = Counter(one["verdict_code"] for one in results)
    leaks = codes.pop("leaks", 0)
    line = f"{len(results)} of {len(cells)} runs are finished; {leaks} of them leak membership"
    line += "".join(f"; {code}: {n}" for code, n in codes.items() if code != "not-established")
    failed = sum(cell["state"] == "failed" for cell in cells)
    return line + (f"; failed and left out: {failed}." if failed else ".")


def notes(cells: Sequence[formats.CellRow], sweep: Sweep) -> list[str]:
    """What a reader of the means must know.

    Args:
        cells: the runs.
        sweep: the settings of the command.

    Returns:
        The notes.
    """
    lines = []
    if sweep.seeds == 1:
        lines.append(
            "One seed: there is no interval between models. Five or more seeds give one worth "
            "having."
        )
    commits = {c["results"]["commit"] for c in cells if c["results"] is not None}
    if len(commits) > 1:
        lines.append(f"The runs were made by {len(commits)} commits of fedmia.")
    return lines + note_left_out([cell["name"] for cell in cells if cell["results"] is None])


def varied(report: formats.SweepReport) -> list[str]:
    """Every option that a grid varies, in order."""
    return list(dict.fromkeys(path for point in report["points"] for path in point["grid"]))


def attacks(report: formats.SweepReport) -> list[Column]:
    """Columns of every attack at every point, controls beside."""
    rows = [row for point in report["points"] for row in point["attacks"]]
    controls = list(dict.fromkeys(label for row in rows for label in row["controls"]))
    return [
        Column("attack", _chosen), mean("mean AUC, 95 %", "auc"), ends("auc"),
        mean("TPR at 1 % FPR, 95 %", "tpr_at_1_percent_fpr"),
        *(
            Column(
                TextCell(f"{name} control", ("mean AUC",)),
                lambda row, name=name: number((row["controls"].get(name) or NONE)["mean"], DIGITS),  # type: ignore[misc]
            )
            for name in controls
        ),
        models("auc"),
    ]  # fmt: skip


def results_of(study: Study, key: str) -> formats.CellResults | None:
    """What a sweep keeps of a run, None unless it is finished."""
    return results(study.finished[key][1]) if key in study.finished else None


def results(report: Report) -> formats.CellResults:
    """What a sweep keeps of a run's report."""
    after = report["utility"].get("after_attack")
    pairs: list[Any] = [
        {key: row.get(key) for key in formats.CellPair.__annotations__} for row in report["paired"]
    ]
    return {
        "verdict": report["verdict"],
        "verdict_code": report["verdict_code"],
        "attacks": [_attack(report, row) for row in report["attacks"]],
        "pairs": pairs,
        "sets": report["sets"],
        "knn": report["utility"]["knn"],
        "linear": report["utility"]["linear"],
        "knn_after_attack": after["knn"] if after else None,
        "commit": report["versions"].get("commit"),
    }


def _attack(report: Report, row: Any) -> formats.CellAttack:
    beside = {label: control_of(report, label, row["name"])
              for label in control_sets(report["controls"])}  # fmt: skip
    more = {
        "tpr_at_1_percent_fpr": row["tpr_at_fpr"]["0.01"],
        "controls": {label: control["auc"] for label, control in beside.items() if control},
    }
    picked: Any = {key: (row | more)[key] for key in formats.CellAttack.__annotations__}
    return picked  # type: ignore[no-any-return]


def _aucs(results: formats.CellResults) -> Known:
    return [(r["name"], r["auc"]) for r in results["attacks"] if r["auc"] is not None]


def _pairs(results: formats.CellResults) -> Known:
    return [(_pair(r), r["difference"]) for r in results["pairs"] if r["difference"] is not None]


def _pair(row: Any) -> str:
    return f"{row['attack']} less {row['control']}"


def _lines(
    cells: Sequence[formats.CellRow], values: Callable[[formats.CellResults], Known]
) -> list[tuple[str, dict[str, list[float]]]]:
    """Each point with the values of its models, as `forest` draws them."""
    return [
        (
            (label(cells_of_point[0]["grid"]).replace(", ", "\n") or "the experiment")
            + mark(c["results"]["verdict_code"] for c in cells_of_point if c["results"]),
            group_by_key(
                one for cell in cells_of_point if cell["results"] for one in values(cell["results"])
            ),
        )
        for cells_of_point in group_by_point(cells).values()
    ]


def _card(cell: formats.CellRow, out: Path) -> dict[str, str]:
    path, results = str(cell["path"]), cell["results"]
    files = [f"{path}/figures/{name}.png" for name in MAIN]
    figure = next((quote(file) for file in files if (out / file).is_file()), "")
    return {
        "name": cell["name"],
        "code": results["verdict_code"] if results else "",
        "verdict": results["verdict"] if results else "",
        "link": quote(f"{path}/report.html"),
        "figure": figure,
    }


def _chosen(row: formats.AttackSpread) -> str | TextCell:
    """An attack's name, under it each choice of its options with how many models led to it."""
    counts = Counter(label(choices) for choices in row["choices"].values())
    chosen = tuple(f"chosen: {options} ({models})" for options, models in counts.most_common())
    return TextCell(row["name"], chosen) if chosen else row["name"]


def _place(point: Mapping[str, Any], path: str) -> str:
    return format_grid_value(point[path]) if path in point else DASH
