"""From the reports of a series' audits to `series.json`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fedmia.config.audit import Audit
from fedmia.config.series import Series, round_of
from fedmia.config.sweep import Cell
from fedmia.config.tree import to_tree
from fedmia.report.format import control_of, estimate
from fedmia.report.rows import Interval, Report
from fedmia.series import scores
from fedmia.series.rows import (
    FORMAT,
    SeriesAttack,
    SeriesCell,
    SeriesDifference,
    SeriesModels,
    SeriesPoint,
    SeriesReport,
)
from fedmia.statistics.spread import DIGITS, spread
from fedmia.sweeping.runs import Done

Cells = Sequence[Cell[Audit]]


def compare(series: Series, cells: Cells, done: Done) -> SeriesReport:
    """The whole of `series.json`.

    Args:
        cells: the audits, with the digests of their files.
    """
    by_encoder: dict[str, list[Cell[Audit]]] = {}
    for cell in cells:
        by_encoder.setdefault(cell.first.encoder, []).append(cell)
    points = [_point(held, done) for held in by_encoder.values()]
    _differences(points, list(by_encoder.values()), done)
    rows = [_cell(cell, done) for cell in cells]
    states = [row["state"] for row in rows]
    took = {done.names[key]: r["timing"].get("total_s") for key, (_, r) in done.finished.items()}
    return {
        "format": FORMAT,
        "sentence": sentence(points, states),
        "points": points,
        "models": models(points),
        "seeds": sorted({cell.seed for cell in cells}),
        "finished": states.count("finished"),
        "failed": states.count("failed"),
        "not_run": states.count("not run"),
        "cells": rows,
        "notes": notes(points, rows, series.seeds) + not_run(done),
        "config": to_tree(series),
        "timing": {"total_s": round(done.seconds, 3), "audits": took},
    }


def leading(points: Sequence[SeriesPoint]) -> str | None:
    """The attack with the largest AUC on the last encoder that has one."""
    for point in reversed(points):
        known = [row for row in point["attacks"] if row["auc"] is not None]
        if known:
            return max(known, key=lambda row: row["auc"] or 0.0)["name"]
    return None


def sentence(points: Sequence[SeriesPoint], states: Sequence[str]) -> str:
    """The leading attack and the kNN, on the first and on the last encoder."""
    name, told = leading(points), []
    ends = [points[0], points[-1]] if len(points) > 1 else [points[0]]
    for point in ends if name is not None else []:
        auc = next((row for row in point["attacks"] if row["name"] == name), None)
        if auc is not None:
            said = f"AUC {estimate(auc['auc'], auc['auc_ci'])}"
            knn = f", kNN {estimate(point['knn'], point['knn_ci'])}"
            told.append(f"{point['name']} {said}{knn * (point['knn'] is not None)}")
    missing = [f"{word}: {states.count(word)}" for word in ("failed", "not run") if word in states]
    found = [f"{name}: {'; '.join(told)}"] if told else ["no audit is finished"]
    return "; ".join([*found, *missing]) + "."


def notes(points: Sequence[SeriesPoint], rows: Sequence[SeriesCell], seeds: int) -> list[str]:
    """What a reader of the means must know."""
    found = []
    if seeds > 1:
        found.append(
            f"{seeds} seeds audit each encoder: other views, and other known images unless a run "
            "names its own; the same model. How much other trainings differ, they do not tell."
        )
    codes = {code for point in points for code in point["verdicts"]}
    if doubtful := sorted(codes & {"shift", "control-failed"}):
        found.append(
            f"Audits with the verdict {' or '.join(doubtful)} have an AUC that is no leak alone: "
            "see their own pages."
        )
    missing = [row["name"] for row in rows if row["state"] != "finished"]
    if missing:
        found.append(f"Left out of every mean: {', '.join(missing)}.")
    return found


def not_run(done: Done) -> list[str]:
    """A line for each attack that did not run, and why."""
    reports = [report for _, report in done.finished.values()]
    found = Counter(
        f"{lost['attack']}: {lost['reason']}" for report in reports for lost in report["not_run"]
    )
    return [
        f"Not run{f', in {count} of {len(reports)} audits' if count < len(reports) else ''}: {why}"
        for why, count in found.items()
    ]


def models(points: Sequence[SeriesPoint]) -> list[SeriesModels]:
    """Rounds that more than one run has, over the runs."""
    found: dict[int, list[SeriesPoint]] = {}
    for point in points:
        if point["round"] is not None:
            found.setdefault(point["round"], []).append(point)
    made: list[SeriesModels] = []
    for turn, held in sorted(found.items()):
        aucs: dict[str, list[float | None]] = {}
        for row in (row for point in held for row in point["attacks"]):
            aucs.setdefault(row["name"], []).append(row["auc"])
        if len(held) > 1:
            made.append({
                "round": turn,
                "attacks": {name: spread(values) for name, values in aucs.items()},
                "knn": spread(point["knn"] for point in held),
                "linear": spread(point["linear"] for point in held),
            })  # fmt: skip
    return made


def _point(cells: Cells, done: Done) -> SeriesPoint:
    """One encoder, over its seeds."""
    found = [done.finished[cell.key][1] for cell in cells if cell.key in done.finished]
    spec = cells[0].first.encoder
    run, turn = round_of(spec)
    codes = [report["verdict_code"] for report in found]
    names = dict.fromkeys(row["name"] for report in found for row in report["attacks"])
    useful = [report["utility"] for report in found]
    first = found[0] if found else None
    row = first["attacks"][0] if first and first["attacks"] else None
    return {
        "encoder": spec,
        "name": str(cells[0].grid["encoder"]),
        "run": run,
        "round": turn,
        "finished": len(found),
        "failed": sum(cell.key in done.failed for cell in cells),
        "verdicts": {code: codes.count(code) for code in sorted(set(codes))},
        "n_members": row["n_members"] if row else None,
        "n_nonmembers": row["n_nonmembers"] if row else None,
        "attacks": [_attack(found, name) for name in names],
        "knn": mean(u["knn"] for u in useful),
        "knn_ci": mean_interval(u["knn_ci"] for u in useful),
        "knn_untrained": mean(u["untrained"]["knn"] for u in useful),
        "linear": mean(u["linear"] for u in useful),
        "linear_ci": mean_interval(u["linear_ci"] for u in useful),
        "n_probe": first["utility"]["n"] if first else None,
    }


def _attack(found: Sequence[Report], name: str) -> SeriesAttack:
    """An attack on one encoder, over the seeds."""
    rows = [next((r for r in report["attacks"] if r["name"] == name), None) for report in found]
    held = [row for row in rows if row is not None]
    beside = [control_of(report, "untrained", name) for report in found]
    return {
        "name": name,
        "auc": mean(row["auc"] for row in held),
        "auc_ci": mean_interval(row["auc_ci"] for row in held),
        "by_seed": [None if row is None else row["auc"] for row in rows],
        "tpr_at_1_percent_fpr": mean(row["tpr_at_fpr"]["0.01"] for row in held),
        "untrained": mean(row["auc"] for row in beside if row is not None),
        "difference": None,
    }


def _differences(points: Sequence[SeriesPoint], cells: Sequence[Cells], done: Done) -> None:
    """Fill in each attack's difference from the last encoder of the same run, or from the last of
    those that have no round."""
    runs = [None if point["round"] is None else point["run"] for point in points]
    ends = {run: i for i, run in enumerate(runs)}
    pairs = [(i, ends[run]) for i, run in enumerate(runs) if i != ends[run]]
    family = sum(len(points[i]["attacks"]) for i, _ in pairs)
    for i, last in pairs:
        held = [_both(a, b, done) for a, b in zip(cells[i], cells[last], strict=True)]
        for row in points[i]["attacks"]:
            known = [
                scores.difference(a[row["name"]], b[row["name"]], family)
                for a, b in held if row["name"] in a and row["name"] in b
            ]  # fmt: skip
            row["difference"] = _mean_difference(known, points[last]["name"])


def _both(one: Cell[Audit], other: Cell[Audit], done: Done) -> tuple[scores.Sides, scores.Sides]:
    """Scores of two audits of the same images; empty where either is not finished."""
    if not {one.key, other.key} <= done.finished.keys():
        return {}, {}
    files = (Path(done.out, done.finished[c.key][0], "scores.csv") for c in (one, other))
    (images, first), (same, second) = map(scores.read, files)
    return (first, second) if images == same else ({}, {})


def _mean_difference(
    known: Sequence[tuple[float, Interval, Interval]], last: str
) -> SeriesDifference | None:
    if not known:
        return None
    values, each, together = zip(*known, strict=True)
    return {
        "last": last,
        "difference": round(statistics.fmean(values), DIGITS),
        "ci": _ends(each),
        "ci_simultaneous": _ends(together),
    }


def _cell(cell: Cell[Audit], done: Done) -> SeriesCell:
    path, report = done.finished.get(cell.key, (None, None))
    reason = done.failed.get(cell.key)
    return {
        "name": done.names[cell.key] if path is None else Path(path).name,
        "encoder": cell.first.encoder,
        "seed": cell.seed,
        "state": "finished" if report else "failed" if reason else "not run",
        "reason": reason,
        "path": path,
        "verdict": report["verdict"] if report else None,
    }


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known, rounded."""
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), DIGITS) if known else None


def mean_interval(intervals: Iterable[Interval | None]) -> Interval | None:
    """The mean of each end, of the intervals that are known."""
    known = [interval for interval in intervals if interval is not None]
    return _ends(known) if known else None


def _ends(intervals: Sequence[Interval]) -> Interval:
    low, high = np.mean(np.asarray(intervals), axis=0)
    return (round(float(low), DIGITS), round(float(high), DIGITS))
