"""The table of all numbers: each number of a report once, under a key of its own."""

from __future__ import annotations

import csv
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fedmia.records import ALONE, AttackSweep, RunScores, ScoredAttack, SetScores, SweepPoint
from fedmia.records.rows import Report
from fedmia.report.build import build_report
from fedmia.storage.manifest import TABLE_TEXT
from fedmia.table import COLUMNS, KEY, Row, flatten, read, write

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NAMES = ("active", "server", "audit")
# No measurements: settings, clocks, and what says where a number is from.
ASIDE = {
    "config", "versions", "hardware", "timing", "interrupted", "choices", "round", "id", "client",
    "shape", "mean", "std", "faults",
}  # fmt: skip
LISTED = ("rounds", "clients")  # identifiers, where they are lists of numbers


def repeated_keys(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    """Keys that more than one row has."""
    counts = Counter(tuple(cast(Any, row)[name] for name in KEY) for row in rows)
    return [key for key, n in counts.items() if n > 1]


def golden(name: str) -> Report:
    return cast(Report, json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")))


@pytest.fixture
def everything(run: RunScores, scored: Callable[..., ScoredAttack]) -> Report:
    """A report of many clients, sets, a sweep and named clients."""
    points = [
        SweepPoint("lpla", 4, 4, scored("lpla", 0.6, 112, 500, 1)),
        SweepPoint("lpla", 9, 9, scored("lpla", 0.7, 112, 500, 2)),
        SweepPoint("dsir", 9),
    ]
    whole = SetScores(
        "ascent", ALONE, 8, np.ones(3), np.zeros(4), "ascent-zero", np.ones(3), np.ones(4)
    )
    clients = [replace(c, id=i) for i, c in enumerate([*run.clients[:9] * 3])]
    full = replace(
        run,
        clients=clients,
        member_client=np.arange(112) % 27,
        sets=[whole, replace(whole, judged="mean"), replace(whole, size=4)],
        sweep=AttackSweep("known", (4, 9), points),
    )
    return cast(Report, json.loads(json.dumps(build_report(full))))


def numbered(value: Any, numbers: Iterator[int], key: str = "") -> Any:
    """The report with a number of its own in the place of every measured number."""
    if isinstance(value, dict):
        aside = ASIDE | ({"value"} if "sweep" in value else set())
        return {k: v if k in aside else numbered(v, numbers, k) for k, v in value.items()}
    if isinstance(value, list):
        return [
            one if key in LISTED and isinstance(one, int) else numbered(one, numbers)
            for one in value
        ]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(next(numbers))
    return value


def absent(report: Report) -> list[int]:
    """The numbers of a report that no row holds, each known by a number of its own."""
    numbers = itertools.count(1000)
    rows = flatten(numbered(report, numbers))
    values = {v for row in rows for v in row.values() if isinstance(v, int | float)}
    return sorted(set(range(1000, next(numbers))) - values)


@pytest.mark.parametrize("name", NAMES)
def test_flatten__gives_every_number_a_row_and_every_row_a_key(name: str) -> None:
    report = golden(name)
    rows = flatten(report)
    assert len(rows) > 600 and not repeated_keys(rows)
    assert all(tuple(row) == COLUMNS for row in rows)
    assert not absent(report)


def test_flatten__of_a_run_with_everything(everything: Report) -> None:
    rows = flatten(everything)
    assert not repeated_keys(rows) and not absent(everything)
    swept = [r["subject"] for r in rows if r["family"] == "sweep" and r["metric"] == "auc"]
    assert swept == ["sweep/known/4", "sweep/known/9"]


def test_flatten__names_what_a_number_is_of() -> None:
    def one(**key: object) -> Row:
        (row,) = (r for r in rows if all(cast(Any, r)[k] == v for k, v in key.items()))
        return row

    report = golden("active")
    rows, pair, attack = flatten(report), report["paired"][0], report["attacks"][0]
    added = one(metric="auc_difference", subject="pair", attack="ascent", baseline="ascent-zero")
    assert (added["value"], added["note"]) == (pair["difference"], pair["statement"])
    assert [added["low"], added["high"]] == pair["ci"]
    assert [added["low_simultaneous"], added["high_simultaneous"]] == pair["ci_simultaneous"]
    rate = one(metric="tpr_at_fpr", attack=attack["name"], target_fpr=0.1, control=None)
    assert (rate["value"], rate["low"]) == (attack["tpr_at_fpr"]["0.1"], 0.0)
    assert (rate["n_members"], rate["n_nonmembers"], rate["level"]) == (16, 52, 0.95)
    assert one(metric="knn", subject="utility", control="untrained")["value"] == 0.0
    tested = report["dataset_inference"][0]["clients"][0]
    found = one(metric="difference", subject="dataset_inference", client=0)
    assert (found["p"], found["p_adjusted"]) == (tested["p_value"], tested["p_value_holm"])
    spent = one(metric="epsilon", subject="client/defence", client=0)
    assert (spent["value"], spent["unit"]) == (96704.0, "client")
    assert one(metric="auc", control="pixels")["attack"] is None


def test_write__is_read_again_as_it_was(everything: Report, tmp_path: Path) -> None:
    rows = flatten(everything)
    paths = write(rows, tmp_path)
    assert [p.name for p in paths] == ["table.parquet", "table.csv"]
    assert read(tmp_path) == read(paths[0]) == rows
    with (tmp_path / TABLE_TEXT).open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(rows) and tuple(lines[0]) == COLUMNS
    assert [float(line["value"]) for line in lines] == [row["value"] for row in rows]
    assert {line["run"] for line in lines} == {""}


def test_repeated__sees_two_rows_of_one_key() -> None:
    rows = flatten(golden("audit"))
    assert repeated_keys([*rows, rows[3]]) == [tuple(cast(Any, rows[3])[name] for name in KEY)]


def test_flatten__of_equal_runs_is_equal_whatever_the_clocks_say(everything: Report) -> None:
    later = cast(Report, {**everything, "timing": {"total_s": 99.0}, "versions": {"torch": "9"}})
    assert flatten(later) == flatten(everything)
