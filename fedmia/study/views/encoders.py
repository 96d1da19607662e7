"""Audits of several encoders: what leaks and what use is left, from encoder to encoder."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import numpy as np

from fedmia.config.audit import Audit
from fedmia.config.series import split_round
from fedmia.config.sweep import Cell
from fedmia.config.tree import to_tree
from fedmia.records.attack_rows import Interval
from fedmia.records.rows import Report
from fedmia.report.figures import canvas
from fedmia.report.format import DASH, control_of, estimate, format_p, interval, number
from fedmia.report.tables import Table, TextCell
from fedmia.statistics.spread import DIGITS as ROUNDED
from fedmia.statistics.spread import spread
from fedmia.storage.manifest import SCORES
from fedmia.study import columns, scores
from fedmia.study.columns import DIGITS, Column, count, decimal, mean, number_with_ci, text_column
from fedmia.study.drawing import cross
from fedmia.study.engine import Study
from fedmia.study.points import count_codes, group_by_key
from fedmia.study.view import StudyPage, mark, note_doubtful_verdicts, note_left_out, study_report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cells = Sequence[Cell[Audit]]
MOST = 6  # attacks that are drawn, the most leaking ones
APART = 0.008  # of the width, between two intervals at one place
ATTACKS = (
    text_column("encoder", "encoder"), text_column("attack", "name"),
    number_with_ci(TextCell("AUC, 95 %", ("mean over seeds",)), "auc"),
    Column("by seed", lambda row: " ".join(number(auc, DIGITS) for auc in row["by_seed"])),
    decimal("TPR at 1 % FPR", "tpr_at_1_percent_fpr"),
    decimal(TextCell("untrained control", ("AUC",)), "untrained"),
    Column(TextCell("minus the last encoder, 95 %", ("simultaneous over all differences",)),
           lambda row: _signed(row["difference"])),
)  # fmt: skip
POINTS = (
    text_column("encoder", "name"), number_with_ci("weighted kNN, 95 %", "knn"),
    decimal("untrained kNN", "knn_untrained"), number_with_ci("linear probe, 95 %", "linear"),
    count("test images", "n_probe"), count("members", "n_members"),
    count("non-members", "n_nonmembers"),
    Column(TextCell("verdicts", ("one a seed",)), lambda row: columns.verdicts(row["verdicts"])),
    Column("data set, p", lambda row: ", ".join(map(" ".join, p_values(row))) or DASH),
    count("failed", "failed"),
)  # fmt: skip
MODELS = (
    text_column("round", "round"), text_column("attack", "attack"), mean("mean AUC, 95 %", "auc"),
    mean("weighted kNN, 95 %", "knn"), mean("linear probe, 95 %", "linear"),
    Column("models", lambda row: str(row["auc"]["n"])),
)  # fmt: skip


@dataclass(frozen=True)
class EncodersView(StudyPage):
    """Every attack on every encoder over the seeds, and each encoder beside the last one."""

    file: ClassVar[str] = "series"
    keeps_json: ClassVar[bool] = False
    beside: ClassVar[Mapping[str, str]] = {"curve": "series.png"}
    captions: ClassVar[Mapping[str, str]] = {
        "curve": "Top: AUC of the most leaking attacks. Bottom: utility of the encoder. Bars: 95 % "
        "intervals, for each number alone; dots: single seeds."
    }

    def report(self, study: Study) -> Any:
        by_encoder = group_by_key((cell.first.encoder, cell) for cell in study.cells)
        points = [_point(cells_of_encoder, study) for cells_of_encoder in by_encoder.values()]
        fill_differences(points, list(by_encoder.values()), study)
        rows = [_cell(cell, study) for cell in study.cells]
        lines = notes(points, rows, study.settings.seeds) + not_run(study)
        return study_report(
            study, sentence(points, [row["state"] for row in rows]),
            {"points": points, "models": models(points)}, {"cells": rows}, lines,
            to_tree(study.settings), "audits",
        )  # fmt: skip

    def tables(self, report: Any) -> dict[str, Table]:
        points: Sequence[Any] = report["points"]
        rows = [
            {**row, "encoder": p["name"] + mark(p["verdicts"])}
            for p in points for row in p["attacks"]
        ]  # fmt: skip
        rounds = [
            {**row, "attack": name, "auc": auc}
            for row in report["models"] for name, auc in row["attacks"].items()
        ]  # fmt: skip
        return {
            "attacks": columns.table(ATTACKS, rows),
            "points": columns.table(POINTS, points),
            "models": columns.table(MODELS, rounds),
        }

    def draw(self, report: Any) -> dict[str, bytes | None]:
        return {"curve": draw(report)}

    def values(self, report: Any, out: Path) -> dict[str, Any]:
        cells = [cell for cell in report["cells"] if cell["path"]]
        links = [(c["name"], quote(f"{c['path']}/report.html"), c["verdict"]) for c in cells]
        return {"links": links}

    def terminal(self, report: Any) -> Any:
        """One line an encoder and attack, the most leaking first."""
        lines = []
        for point in report["points"]:
            knn = estimate(point["knn"], point["knn_ci"], DIGITS)
            rows = sorted(point["attacks"], key=lambda r: -(r["auc"] or 0.0))
            attacks = [(row["name"], estimate(row["auc"], row["auc_ci"], DIGITS)) for row in rows]
            attacks += p_values(point)
            code = columns.verdicts(point["verdicts"])
            lines += [(point["name"], code, *one, knn) for one in attacks or [(DASH, DASH)]]
        heads = ("encoder", "verdict", "attack"), ("AUC, 95 %", "kNN, 95 %")
        return columns.screen(*heads, lines, once=(0, 1, 4))


def p_values(point: Any) -> list[tuple[str, str]]:
    """Each attack on data sets, and `p 0.0300`, one a seed."""
    by_attack = point["p_values"].items()
    return [(name, f"p {' '.join(format_p(p) for p in values)}") for name, values in by_attack]


def _finding(point: Any) -> str:
    """An encoder's verdict, its strongest attack, the p-values of its data set, and its kNN."""
    parts = [columns.verdicts(point["verdicts"]).removesuffix(" 1")]
    known = [row for row in point["attacks"] if row["auc"] is not None]
    if known:
        best = max(known, key=lambda row: row["auc"] or 0.0)
        parts.append(f"{best['name']} AUC {estimate(best['auc'], best['auc_ci'])}")
    parts += map(" ".join, p_values(point))
    if point["knn"] is not None:
        parts.append(f"kNN {estimate(point['knn'], point['knn_ci'])}")
    return f"{point['name']}: {', '.join(parts)}"


def sentence(points: Sequence[Any], states: Sequence[str]) -> str:
    """Verdict and strongest attack of each encoder; of the rounds of one run, of the ends alone.

    Args:
        points: the encoders.
        states: of the audits: finished, failed or not run.

    Returns:
        The sentence.
    """
    known = [point for point in points if point["verdicts"]]
    if len({(p["run"], p["round"] is None) for p in known}) == 1 and known[0]["round"] is not None:
        known = [known[0], *known[1:][-1:]]
    parts = [_finding(point) for point in known]
    missing = [f"{word}: {states.count(word)}" for word in ("failed", "not run") if word in states]
    return "; ".join([*(parts or ["no audit is finished"]), *missing]) + "."


def notes(points: Sequence[Any], rows: Sequence[Any], seeds: int) -> list[str]:
    """What a reader of the means must know.

    Args:
        points: the encoders.
        rows: the audits.
        seeds: how many.

    Returns:
        The notes.
    """
    lines = []
    if seeds > 1:
        lines.append(
            f"{seeds} seeds audit each encoder. Each seed has its own views, and its own known "
            "images unless a run names them. The model is the same, so the seeds do not cover the "
            "variation between trainings."
        )
    lines += note_doubtful_verdicts(points, "Audits")
    return lines + note_left_out([row["name"] for row in rows if row["state"] != "finished"])


def not_run(study: Study) -> list[str]:
    """A line for each attack that did not run, and why."""
    reports = [report for _, report in study.finished.values()]
    reasons = Counter(
        f"{lost['attack']}: {lost['reason']}" for report in reports for lost in report["not_run"]
    )
    return [
        f"Not run{f', in {many} of {len(reports)} audits' if many < len(reports) else ''}: {why}"
        for why, many in reasons.items()
    ]


def models(points: Sequence[Any]) -> list[Any]:
    """Rounds that more than one run has, over the runs."""
    rounds = group_by_key((point["round"], point) for point in points if point["round"] is not None)
    rows: list[Any] = []
    for turn, points_of_round in sorted(rounds.items()):
        aucs = group_by_key(
            (row["name"], row["auc"]) for point in points_of_round for row in point["attacks"]
        )
        if len(points_of_round) > 1:
            rows.append({
                "round": turn,
                "attacks": {name: spread(values) for name, values in aucs.items()},
                "knn": spread(point["knn"] for point in points_of_round),
                "linear": spread(point["linear"] for point in points_of_round),
            })  # fmt: skip
    return rows


def _point(cells: Cells, study: Study) -> Any:
    """One encoder, over its seeds."""
    reports = [study.finished[cell.key][1] for cell in cells if cell.key in study.finished]
    spec = cells[0].first.encoder
    run, turn = split_round(spec)
    names = dict.fromkeys(row["name"] for report in reports for row in report["attacks"])
    useful = [report["utility"] for report in reports]
    first = reports[0] if reports else None
    row = first["attacks"][0] if first and first["attacks"] else None
    return {
        "encoder": spec,
        "name": str(cells[0].grid["encoder"]),
        "run": run,
        "round": turn,
        "finished": len(reports),
        "failed": sum(cell.key in study.failed for cell in cells),
        "verdicts": count_codes([report["verdict_code"] for report in reports]),
        "n_members": row["n_members"] if row else None,
        "n_nonmembers": row["n_nonmembers"] if row else None,
        "attacks": [_attack(reports, name) for name in names],
        "p_values": group_by_key(
            (row["attack"], row["p_value"]) for one in reports for row in one["dataset_inference"]
        ),
        "knn": mean_of(u["knn"] for u in useful),
        "knn_ci": mean_interval(u["knn_ci"] for u in useful),
        "knn_untrained": mean_of(u["untrained"]["knn"] for u in useful),
        "linear": mean_of(u["linear"] for u in useful),
        "linear_ci": mean_interval(u["linear_ci"] for u in useful),
        "n_probe": first["utility"]["n"] if first else None,
    }


def _attack(reports: Sequence[Report], name: str) -> Any:
    """An attack on one encoder, over the seeds."""
    rows = [next((r for r in report["attacks"] if r["name"] == name), None) for report in reports]
    known = [row for row in rows if row is not None]
    beside = [control_of(report, "untrained", name) for report in reports]
    return {
        "name": name,
        "auc": mean_of(row["auc"] for row in known),
        "auc_ci": mean_interval(row["auc_ci"] for row in known),
        "by_seed": [None if row is None else row["auc"] for row in rows],
        "tpr_at_1_percent_fpr": mean_of(row["tpr_at_fpr"]["0.01"] for row in known),
        "untrained": mean_of(row["auc"] for row in beside if row is not None),
        "difference": None,
    }


def fill_differences(points: Sequence[Any], cells: Sequence[Cells], study: Study) -> None:
    """Fill in each attack's difference from the last encoder of the same run, or from the last of
    those that have no round.

    Args:
        points: the encoders.
        cells: the audits of each.
    """
    runs = [None if point["round"] is None else point["run"] for point in points]
    ends = {run: i for i, run in enumerate(runs)}
    pairs = [(i, ends[run]) for i, run in enumerate(runs) if i != ends[run]]
    family = sum(len(points[i]["attacks"]) for i, _ in pairs)
    for i, last in pairs:
        score_pairs = [both_of(a, b, study) for a, b in zip(cells[i], cells[last], strict=True)]
        for row in points[i]["attacks"]:
            known = [
                scores.difference(a[row["name"]], b[row["name"]], family)
                for a, b in score_pairs if row["name"] in a and row["name"] in b
            ]  # fmt: skip
            row["difference"] = _mean_difference(known, points[last]["name"])


def both_of(
    one: Cell[Audit], other: Cell[Audit], study: Study
) -> tuple[scores.Sides, scores.Sides]:
    """Scores of two audits of the same images; empty where either is not finished.

    Args:
        one: an audit.
        other: of the same images.

    Returns:
        Scores by attack, of each of the two.
    """
    if not {one.key, other.key} <= study.finished.keys():
        return {}, {}
    files = (Path(study.out, study.finished[c.key][0], SCORES) for c in (one, other))
    (images, first), (same, second) = map(scores.read, files)
    return (first, second) if images == same else ({}, {})


def _mean_difference(known: Sequence[tuple[float, Interval, Interval]], last: str) -> Any:
    if not known:
        return None
    values, each, both = zip(*known, strict=True)
    return {
        "last": last,
        "difference": round(statistics.fmean(values), ROUNDED),
        "ci": mean_interval(each),
        "ci_simultaneous": mean_interval(both),
    }


def _cell(cell: Cell[Audit], study: Study) -> Any:
    _, report = study.finished.get(cell.key, (None, None))
    verdict = report["verdict"] if report else None
    return study.state(cell, encoder=cell.first.encoder) | {"verdict": verdict}


def mean_of(values: Iterable[float | None]) -> float | None:
    """Of those that are known, rounded."""
    return spread(values)["mean"]


def mean_interval(intervals: Iterable[Interval | None]) -> Interval | None:
    """The mean of each end, of the intervals that are known."""
    known = [interval for interval in intervals if interval is not None]
    if not known:
        return None
    low, high = np.mean(np.asarray(known), axis=0)
    return (round(float(low), ROUNDED), round(float(high), ROUNDED))


def _signed(value: Any) -> str | TextCell:
    """`+0.012 [-0.004, 0.028]` over the simultaneous interval."""
    if value is None:
        return DASH
    line = f"{value['difference']:+.{DIGITS}f} {interval(value['ci'], DIGITS)}"
    return TextCell(line, (interval(value["ci_simultaneous"], DIGITS),))


# -- the curve -------------------------------------------------------------------------------------


@canvas.drawn
def draw(report: Any) -> Figure | None:
    """AUC of the attacks over kNN and linear probe, by round or by encoder; None without any."""
    points = [point for point in report["points"] if point["finished"]]
    names = _names(points)
    if not names:
        return None
    figure = canvas.new_figure(8, 6.4)
    probes = 1 + any(point[key] is not None for point in points for key in ("knn", "linear"))
    panels = figure.subplots(probes, 1, sharex=True, squeeze=False, height_ratios=(3, 2)[:probes])
    above, below = panels[0, 0], panels[-1, 0]  # without labels there is no probe: one panel
    lines = _lines(points)
    apart = APART * max(1.0, *(x for _, places in lines for x, _ in places))
    for j, (_, places) in enumerate(lines):
        dashes = {"linestyle": canvas.DASHES[j % len(canvas.DASHES)]}
        for i, name in enumerate(names):
            rows: list[Any] = [
                (x, row) for x, point in places for row in point["attacks"] if row["name"] == name
            ]
            shift = apart * (i - (len(names) - 1) / 2)
            _line(above, rows, "auc", canvas.look(i) | dashes, shift, name * (j == 0))
            dots = [
                (x + shift, auc) for x, row in rows for auc in row["by_seed"] if auc is not None
            ]
            if len(dots) > len(rows):
                look = {"color": canvas.look(i)["color"], "markersize": 4, "alpha": 0.5}
                above.plot(*zip(*dots, strict=True), ".", **look)
        for i, (key, name) in enumerate((("knn", "weighted kNN"), ("linear", "linear probe"))):
            look = {"color": (canvas.INK, canvas.GREY)[i], "marker": "os"[i]} | dashes
            _line(below, places, key, look, apart * (i - 0.5), name * (j == 0))
    if len(lines) > 1:  # their dashes tell the runs apart
        for j, (run, _) in enumerate(lines):
            look = {"color": canvas.GREY, "linestyle": canvas.DASHES[j % len(canvas.DASHES)]}
            below.plot([], [], **look, label=run)
    canvas.half_line(above)
    below.set_ylabel("accuracy")
    above.set_ylabel("AUC (0.5: no leakage)")
    if all(point["round"] is not None for point in points):
        canvas.whole_rounds(below)
    else:
        below.set_xticks(range(len(points)), [point["name"] for point in points])
        if len(points) > 3:
            below.tick_params("x", labelrotation=20)
    for axes in panels[:, 0]:
        axes.legend(loc="best", ncols=2)
    return figure


def _names(points: Sequence[Any]) -> list[str]:
    """The attacks with the largest AUC on any encoder, the first leading."""
    aucs = group_by_key((r["name"], r["auc"] or 0.0) for point in points for r in point["attacks"])
    return sorted(aucs, key=lambda name: -max(aucs[name]))[:MOST]


def _lines(points: Sequence[Any]) -> list[tuple[str, list[tuple[float, Any]]]]:
    """The places of what one line joins: the rounds of a run, or encoders that have none."""
    if any(point["round"] is None for point in points):
        return [("the encoders", [(float(i), point) for i, point in enumerate(points)])]
    runs = group_by_key((point["run"], (float(point["round"] or 0), point)) for point in points)
    return [(run, sorted(places, key=lambda at: at[0])) for run, places in runs.items()]


def _line(
    axes: Axes, rows: Sequence[tuple[float, Any]], key: str, look: dict[str, Any], shift: float,
    label: str,
) -> None:  # fmt: skip
    """Values with their intervals, moved aside by `shift` so that those of others are seen."""
    known = [(x + shift, row[key], row[f"{key}_ci"]) for x, row in rows if row[key] is not None]
    if not known:
        return
    xs, ys, _ = zip(*known, strict=True)
    axes.plot(xs, ys, **look, markersize=5, linewidth=1.4, label=label or None)
    for x, y, ci in known:
        cross(axes, (x, y), None, ci, color=look["color"], alpha=0.4, linewidth=2.5)
