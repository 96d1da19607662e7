"""report.json is what `fedmia.records.rows` says: every key, and a value of its type."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from fedmia.records.rows import Report

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
VARYING = {"timing", "versions", "hardware"}


def wrong(value: Any, kind: Any, where: str, absent: frozenset[str] = frozenset()) -> Iterator[str]:
    """Every place where JSON `value` is not of type `kind`; `absent`: keys that may be missing."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin in (Union, types.UnionType):
        if all(list(wrong(value, one, where)) for one in inside):
            yield f"{where}: {value!r} is no {kind}"
    elif is_typeddict(kind):
        hints = get_type_hints(kind)
        whole = get_type_hints(kind, include_extras=True)
        must = {key for key, hint in whole.items() if get_origin(hint) is not NotRequired} - absent
        if not isinstance(value, dict) or not must <= set(value):
            yield f"{where}: {value!r} lacks keys of {kind}"
            return
        for key, one in value.items():
            if key not in hints:
                yield f"{where}.{key}: unknown"
            else:
                yield from wrong(one, hints[key], f"{where}.{key}")
    elif origin in (list, Sequence):
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no list"
            return
        for i, one in enumerate(value):
            yield from wrong(one, inside[0], f"{where}[{i}]")
    elif origin in (dict, Mapping):
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no mapping"
            return
        for key, one in value.items():
            yield from wrong(one, inside[1], f"{where}.{key}")
    elif not (isinstance(value, kind) or (kind is float and type(value) is int)):
        yield f"{where}: {value!r} is no {kind}"


def test_report__of_a_run_with_everything(whole: Report) -> None:
    assert not list(wrong(json.loads(json.dumps(whole)), Report, "report"))
    # `client_counts` is of reports that do not list every client.
    assert [name for name in get_type_hints(Report) if name != "client_counts"] == list(whole)


@pytest.mark.parametrize("name", ["active", "server", "audit"])
def test_report__of_the_golden_runs(name: str) -> None:
    report = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert not list(wrong(report, Report, "report", frozenset(VARYING)))


def test_wrong__sees_a_misspelt_key_and_a_wrong_type(whole: Report) -> None:
    report: Any = json.loads(json.dumps(whole))
    report["attacks"][0]["acuracy"] = 0.5
    report["rounds"][4]["leakage"]["similarity"] = "high"
    del report["family"]["method"]
    report["clients"][1]["defence"]["epsilon"]["value"] = [8]
    fields = {line.partition(":")[0] for line in wrong(report, Report, "report")}
    assert fields == {
        "report.attacks[0].acuracy", "report.rounds[4].leakage.similarity", "report.family",
        "report.clients[1].defence",
    }  # fmt: skip
