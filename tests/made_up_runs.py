"""Folders of runs with made-up numbers: what a test does not say of a report is of its type."""

from __future__ import annotations

import dataclasses
import json
import shutil
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from fedmia import open_run
from fedmia.records import ClientInfo, Evaluation, ScoredAttack
from fedmia.records.rows import FORMAT, Report
from fedmia.report.build import build_report
from fedmia.report.publish import write_report as write_report_files
from fedmia.storage.json_rows import from_json

R = TypeVar("R")
STORED = Path(__file__).resolve().parent / "stored" / "run"


def completed(kind: Any, value: Any = ...) -> Any:
    """`value` as JSON with what its type has beside it: null, zero, empty; `...`: all of it."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is ... or value is None:
            return None
        (bare,) = (one for one in inside if one is not types.NoneType)
        return completed(bare, value)
    if is_row(kind):
        hints = get_type_hints(kind)
        own = {} if value is ... else value
        must = {one.name: completed(hints[one.name], own.get(one.name, ...))
                for one in dataclasses.fields(kind)}  # fmt: skip
        return {**own, **must}
    if kind is Any:
        return value
    if value is ...:
        return [] if origin in (list, Sequence) else {} if origin in (dict, Mapping) else kind()
    if origin in (list, Sequence):
        return [completed(inside[0], one) for one in value]
    if origin in (dict, Mapping):
        return {key: completed(inside[1], one) for key, one in value.items()}
    return value


def kind_at(place: str) -> Any:
    """The class of the rows at a place of report.json, such as `clients.defence.epsilon`."""
    kind: Any = Report
    for name in place.split("."):
        (kind,) = (one for one in _within(get_type_hints(kind)[name]) if is_row(one))
    return kind


def is_row(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


def _within(hint: Any) -> Iterator[Any]:
    yield hint
    for one in get_args(hint):
        yield from _within(one)


def made_up_row(place: str, **fields: Any) -> Any:
    """The row at this place of report.json whose fields say so, in the types of JSON."""
    return made_up(kind_at(place), **fields)


def made_up(kind: type[R], **fields: Any) -> R:
    """The row of this class whose fields say so, in the types of JSON."""
    return from_json(kind, completed(kind, fields), kind.__name__)


def made_up_report(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What report.json holds of a run whose report says so."""
    return cast(dict[str, Any], completed(Report, {"format": FORMAT, **fields}))


def write_run(folder: Path, report: Mapping[str, Any]) -> None:
    """The folder of a run whose report says so."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(STORED / "config.yaml", folder)
    write_report(folder, report)


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """The report of a run that says so."""
    (folder / "report.json").write_text(json.dumps(made_up_report(report)), encoding="utf-8")


def report_of(*attacks: ScoredAttack, **more: Any) -> Report:
    """The report of these attacks alone, on images of one client and class."""
    n, m = map(len, attacks[0].sides) if attacks else (0, 0)
    zeros = np.zeros(n, np.int64)
    run = Evaluation(
        0, np.arange(n), np.arange(n, n + m), zeros, zeros, np.zeros(m, np.int64), attacks=attacks
    )
    return build_report(dataclasses.replace(run, **more))


def stated_epsilon(told: Any) -> Any:
    """What a client's defence states, as a report holds it: with its bound by canaries."""
    defence = dataclasses.replace(made_up_row("clients.defence", name="defence"), epsilon=told)
    report: Any = report_of(clients=[ClientInfo(0, 1, "honest", defence)])
    return report.clients[0].defence.epsilon


@cache
def columns() -> list[str]:
    """The columns of the table of all numbers."""
    return [*open_run(STORED).table.columns]


def table_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every number of a report, a row each, as its folder's table has it."""
    return [{**row} for row in _table_rows(json.dumps(report))]


@cache
def _table_rows(text: str) -> list[dict[str, Any]]:
    nobody = np.zeros(0)
    with TemporaryDirectory() as folder:
        write_run(Path(folder), {})
        (Path(folder) / "report.json").write_text(text, encoding="utf-8")
        run = open_run(folder)
        scores = Evaluation(0, nobody, nobody, nobody, nobody, nobody, attacks=())
        write_report_files(Path(folder), scores, run.records, {})
        rows = run.table.to_dict("records")
    return [{str(k): None if v != v else v for k, v in row.items()} for row in rows]
