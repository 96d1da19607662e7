"""Folders of runs with made-up numbers: what a test does not say of a report is of its type."""

from __future__ import annotations

import json
import shutil
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from fedmia.records.fields import mismatches
from fedmia.records.rows import Report

STORED = Path(__file__).resolve().parent / "stored" / "run"


def completed(value: Any, kind: Any) -> Any:
    """`value` with what its type requires beside it: null, zero, empty; `...`: all of it."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is ... or value is None:
            return None if type(None) in inside else completed(value, inside[0])
        records = [k for k in inside if is_typeddict(k)] if isinstance(value, dict) else []
        wholes = [(completed(value, kind), kind) for kind in records]
        return next((one for one, kind in wholes if not [*mismatches(one, kind, "")]), value)
    if is_typeddict(kind):
        hints, whole = get_type_hints(kind), get_type_hints(kind, include_extras=True)
        own = {} if value is ... else value
        must = [k for k, hint in whole.items() if get_origin(hint) is not NotRequired]
        return {
            k: completed(own.get(k, ...), hints.get(k, Any)) for k in {**dict.fromkeys(must), **own}
        }
    if kind is Any:
        return value
    if value is ...:
        return [] if origin in (list, Sequence) else {} if origin in (dict, Mapping) else kind()
    return [completed(one, inside[0]) for one in value] if origin in (list, Sequence) else value


def write_run(folder: Path, report: Mapping[str, Any]) -> None:
    """The folder of a run whose report says so."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(STORED / "config.yaml", folder)
    write_report(folder, report)


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """The report of a run that says so."""
    whole = json.dumps(completed(dict(report), Report))
    (folder / "report.json").write_text(whole, encoding="utf-8")
