"""The number of a cell, read off what its jobs wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmia.records.rows import Report
from fedmia.settings.errors import InputError
from fedmia.statistics.spread import clip_interval, t_interval
from fedmia.storage.runfolder import RunFolder
from fedmia.study.points import BySeed
from fedmia.untrusted.text import read_json
from research.papers.entries import TableCell
from research.papers.jobs import AUDIT, ENCODER, FEDERATION, HEAD, PAPER, JobFolder

FILES = {
    ENCODER: "losses.json",
    PAPER: "tables.json",
    HEAD: "report.json",
}  # of jobs that are no runs
Row = Mapping[str, Any]
Rows = Sequence[Row]
SHARES = {"accuracy", "auc", "precision", "recall", "f1", "tpr", "knn", "linear", "utility"}


@dataclass(frozen=True)
class Reading:
    """One number.

    Attributes:
        value: None where the job has no such number.
        low, high: its 95 % interval, None without one.
        interval: what the interval covers: `images`, `targets`, `heads` or nothing.
        n_members, n_nonmembers: images scored a side, None where none are.
        by_seed: the number of each target that has one, by the seed of the target.
        one_score: whether the attack gave nearly all images of a target one score.
        no_answer: seeds of the targets where it did; empty of a single job.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    interval: str = ""
    n_members: int | None = None
    n_nonmembers: int | None = None
    by_seed: BySeed = field(default_factory=dict)
    one_score: bool = False
    no_answer: Sequence[int] = ()


def read_cell(cell: TableCell, folder: JobFolder) -> Reading | None:
    """The number of a cell over its targets.

    Args:
        cell: with its jobs.
        folder: where they are kept.

    Returns:
        The mean over the targets that are finished, with Student's interval over targets where
        there are several, else the interval over images; None where no target is finished.
    """
    readings = {
        next(job.chain()).tree["seed"]: read_path(job.kind, folder.path(job) / "results", cell.read)
        for job in cell.jobs
        if folder.done(job) is not None
    }
    by_seed = {seed: r.value for seed, r in readings.items() if r.value is not None}
    if not by_seed:
        return next(iter(readings.values()), None)
    one, values = readings[min(by_seed)], list(by_seed.values())
    no_answer = tuple(seed for seed, r in readings.items() if r.one_score and seed in by_seed)
    if len(values) == 1:
        return replace(one, by_seed=by_seed, no_answer=no_answer)
    ci = t_interval(values)
    if _is_share(cell.read):
        ci = clip_interval(ci)
    low, high = ci or (None, None)
    mean = sum(values) / len(values)
    sides = one.n_members, one.n_nonmembers
    return Reading(mean, low, high, "targets", *sides, by_seed, bool(no_answer), no_answer)


def _is_share(path: str) -> bool:
    """Whether a number lies in [0, 1] by what it is: a loss or a difference may be negative."""
    what = path.rpartition("/")[2].partition("@")[0]
    return what in SHARES or path.startswith("table_3/")


def read_path(kind: str, results: Path, path: str) -> Reading:
    """One number of what a job wrote.

    Args:
        kind: of the job.
        results: folder that it filled.
        path: of the number. Of runs and audits `ATTACK/METRIC` (`lpla/tpr@0.001`), `utility/knn`,
            `untrained/ATTACK/auc`, `sweep/ATTACK@KNOWN/accuracy`; of heads
            `MECHANISM@EPSILON/accuracy`, `none/utility`, `sensitivity/l1`; else the keys and, of
            lists, places or `NAME=VALUE`, the last row of which this is true, parted by slashes.

    Returns:
        The number; its value is None where the file lacks it or holds null.

    Raises:
        InputError: the file cannot be read.
    """
    first, *keys = path.split("/")
    if kind in (AUDIT, FEDERATION):
        return _of_report(RunFolder(results).report(), first, keys)
    file = results / FILES[kind]
    try:
        content = read_json(file)
    except (OSError, ValueError):
        raise InputError(f"{file} cannot be read: delete its folder") from None
    if kind == HEAD and first != "sensitivity":
        return _of_head(content, first, keys)
    *above, last = first, *keys
    return _reading(_down(content, above), last)


def _of_report(report: Report, first: str, keys: Sequence[str]) -> Reading:
    if first == "utility":
        return _reading(vars(report.utility), keys[-1])
    rows = {row.name: row for row in report.attacks}
    if first == "sweep":
        first, _, at = keys[0].partition("@")
        rows = {r.attack: r.scored for r in report.sweep if r.scored and str(r.value) == at}
    if first == "untrained":
        rows, (first, *keys) = {row.name: row for row in report.controls["untrained"]}, keys
    if (scored := rows.get(first)) is None:
        return Reading(None)
    row = dict(vars(scored))
    metric, _, rate = keys[-1].partition("@")
    if metric == "tpr":
        row |= {"tpr": scored.tpr_at_fpr.get(rate), "tpr_ci": scored.tpr_at_fpr_ci.get(rate)}
    if metric == "f1" and scored.precision is not None and scored.recall is not None:
        both = scored.precision + scored.recall
        row["f1"] = 2 * scored.precision * scored.recall / both if both else 0.0
    return _reading(row, metric)


def _of_head(content: Mapping[str, Any], first: str, keys: Sequence[str]) -> Reading:
    mechanism, _, epsilon = first.partition("@")
    rows = [row for row in content["rows"] if (row["mechanism"] or "none") == mechanism]
    if epsilon:
        rows = [row for row in rows if float(row["epsilon"]) == float(epsilon)]
    row: Any = next(iter(rows), None)
    if row is None:
        return Reading(None)
    if keys[-1] in ("auc", "accuracy"):
        row = next(one for one in row["attacks"] if one["name"] == "shadow")
    return _spread(row[keys[-1]])


def _down(content: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if isinstance(content, list):
            rows = [row for row in content if isinstance(row, Mapping)]
            by_value = {f"{name}={value}": row for row in rows for name, value in row.items()}
            content = by_value | {str(place): row for place, row in enumerate(content)}
        content = None if content is None else content.get(key)
    return content


def _reading(row: Any, key: str) -> Reading:
    if row is None:
        return Reading(None)
    value = _down(row, [key])
    if isinstance(value, Mapping):
        return _spread(value)
    if not isinstance(row, Mapping):
        return Reading(value)
    low, high = row.get(f"{key}_ci") or (None, None)
    sizes = row.get("n_members", row.get("n")), row.get("n_nonmembers")
    one_score = row.get("one_score") is not None
    return Reading(
        value, low, high, "images" if low is not None else "", *sizes, one_score=one_score
    )


def _spread(row: Mapping[str, Any]) -> Reading:
    low, high = row.get("ci") or (None, None)
    return Reading(row["mean"], low, high, "heads" if low is not None else "", row.get("n"))
