"""Folders of runs with made-up numbers: what a test does not say of a report is of its type."""

from __future__ import annotations

import dataclasses
import json
import shutil
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fedmia.records.as_json import from_json
from fedmia.records.rows import FORMAT, Report

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
    if dataclasses.is_dataclass(kind):
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
