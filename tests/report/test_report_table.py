"""The table of all numbers: each number of a report once, under a key of its own."""

from __future__ import annotations

import csv
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedmia.records import Evaluation, ScoredAttack, fields, rows
from fedmia.records.attack_rows import AttackRow, Interval
from fedmia.records.fields import SHARE, interval, number
from fedmia.records.rows import Report
from fedmia.report import build, report_tables
from fedmia.report.publish import write_report
from fedmia.storage import json_rows
from fedmia.storage.json_rows import from_json, to_json
from fedmia.storage.manifest import TABLE_TEXT
from fedmia.storage.results import read, write
from fedmia.study.points import over_points
from fedmia.table import COLUMNS, KEY, Row, flatten, numbers
from tests.made_up_runs import made_up_report
from tests.report.conftest import make_run, terminal

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NAMES = ("active", "server", "audit")
# No measurements: settings, clocks, and what says where a number is from.
ASIDE = {
    "config", "versions", "hardware", "timing", "interrupted", "choices", "round", "id", "client",
    "shape", "mean", "std", "faults", "tests", "n_controls", "fitted_on", "format",
}  # fmt: skip
# Likewise, of rows that have such a field: a sweep, a group of clients, dataset inference, an
# exposed member, a part of the members.
OF = {
    "sweep": {"value"}, "group": {"n_clients"}, "posers": {"family"},
    "most_false": {"rank", "image", "label"}, "alarms": {"name"},
}  # fmt: skip
LISTED = ("rounds", "clients")  # identifiers, where they are lists of numbers


def repeated_keys(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    """Keys that more than one row has."""
    counts = Counter(tuple(row[name] for name in KEY) for row in rows)
    return [key for key, n in counts.items() if n > 1]


def golden(name: str) -> Report:
    content = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return from_json(Report, made_up_report(content), name)


def numbered(value: Any, counter: Iterator[int], key: str = "") -> Any:
    """The report with a number of its own in the place of every measured number."""
    if isinstance(value, dict):
        aside = ASIDE.union(*(names for key, names in OF.items() if key in value))
        return {k: v if k in aside else numbered(v, counter, k) for k, v in value.items()}
    if isinstance(value, list):
        return [
            one if key in LISTED and isinstance(one, int) else numbered(one, counter)
            for one in value
        ]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return next(counter)
    return value


def absent(report: Report) -> list[int]:
    """The numbers of a report that no row holds, each known by a number of its own."""
    counter = itertools.count(1000)
    rows = flatten(from_json(Report, numbered(to_json(report), counter), "numbered"))
    values = {v for row in rows for v in row.values() if isinstance(v, int | float)}
    return sorted(set(range(1000, next(counter))) - values)


@pytest.mark.parametrize("name", NAMES)
def test_flatten__gives_every_number_a_row_and_every_row_a_key(name: str) -> None:
    report = golden(name)
    rows = flatten(report)
    assert len(rows) > 500 and not repeated_keys(rows)
    assert all([*row] == [*COLUMNS] for row in rows)
    assert not absent(report)


def test_flatten__of_a_run_with_everything(whole: Report) -> None:
    rows = flatten(whole)
    assert not repeated_keys(rows) and not absent(whole)
    swept = [r["subject"] for r in rows if r["family"] == "sweep" and r["metric"] == "auc"]
    assert swept == ["sweep/known/4", "sweep/known/9"]


def test_flatten__names_what_a_number_is_of() -> None:
    def one(**key: object) -> Row:
        (row,) = (r for r in rows if all(r[k] == v for k, v in key.items()))
        return row

    report = golden("active")
    rows, pair, attack = flatten(report), report.paired[0], report.attacks[0]
    added = one(metric="auc_difference", subject="pair", attack="ascent", baseline="ascent-zero")
    assert added["value"] == pair.difference
    assert [added["ci_low"], added["ci_high"]] == pair.ci
    assert [added["low"], added["high"]] == [pair.low, pair.high]
    rate = one(metric="tpr_at_fpr", attack=attack.name, target_fpr=0.1, control=None)
    assert (rate["value"], rate["ci_low"]) == (attack.tpr_at_fpr["0.1"], 0.0)
    assert (rate["n_members"], rate["n_nonmembers"], rate["level"]) == (16, 52, 0.95)
    assert one(metric="knn", subject="utility", control="untrained")["value"] == 0.0
    tested = report.dataset_inference[0].clients[0]
    found = one(metric="difference", subject="dataset_inference", client=0)
    assert (found["p"], found["p_adjusted"]) == (tested.p_value, tested.p_value_holm)
    spent = one(metric="epsilon", subject="client/defence", client=0)
    assert (spent["value"], spent["unit"]) == (96704.0, "client")
    assert one(metric="auc", control="pixels")["attack"] is None


def test_write__is_read_again_as_it_was(whole: Report, tmp_path: Path) -> None:
    rows = flatten(whole)
    paths = write(rows, tmp_path)
    assert [p.name for p in paths] == ["table.parquet", "table.csv"]
    assert read(tmp_path) == read(paths[0]) == rows
    with (tmp_path / TABLE_TEXT).open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(rows) and [*lines[0]] == [*COLUMNS]
    assert [float(line["value"]) for line in lines] == [row["value"] for row in rows]
    assert {line["run"] for line in lines} == {""}


def test_repeated__sees_two_rows_of_one_key() -> None:
    rows = flatten(golden("audit"))
    assert repeated_keys([*rows, rows[3]]) == [tuple(rows[3][name] for name in KEY)]


def test_flatten__of_equal_runs_is_equal_whatever_the_clocks_say(whole: Report) -> None:
    later = replace(whole, timing={"total_s": 99.0}, versions={"torch": "9"})
    assert flatten(later) == flatten(whole)


LOG = "overlap/{attack}"


@dataclass(frozen=True, kw_only=True)
class OverlapRow(AttackRow):
    """A row that declares one number more, and its interval."""

    overlap: float | None = number(
        "share of members that score under nine in ten non-members",
        SHARE,
        label="overlap of both",
        head="over-\nlap",
        place=3,
        log=LOG,
    )
    overlap_ci: Interval | None = interval("overlap")


def overlap(attack: ScoredAttack) -> float:
    """Share of members that score under nine in ten non-members."""
    return float(np.mean(attack.scores_members < np.quantile(attack.scores_nonmembers, 0.9)))


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two files changed: the row declares the number, and its maker computes it."""
    as_it_was = build.attack_row

    def attack_row(attack: ScoredAttack, *more: Any, **flags: Any) -> OverlapRow:
        value, row = overlap(attack), as_it_was(attack, *more, **flags)
        return OverlapRow(**vars(row), overlap=value, overlap_ci=[value - 0.1, 1.0])

    monkeypatch.setattr(build, "attack_row", attack_row)
    for module in (rows, report_tables):  # where the name of the class stands
        monkeypatch.setattr(module, "AttackRow", OverlapRow)
    for module, cached in ((fields, "_fields"), (json_rows, "_hints")):
        monkeypatch.setattr(module, cached, cache(getattr(module, cached).__wrapped__))


def test_number__is_in_json_page_terminal_observer_and_table(
    declared: None, run: Evaluation, tmp_path: Path
) -> None:
    report = build.build_report(run)
    write_report(tmp_path, run, report, {})
    want = {attack.name: round(overlap(attack), 6) for attack in run.attacks}
    assert 0 < want["similarity"] < 1

    written = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert {row["name"]: row["overlap"] for row in written["attacks"]} == want
    mine = [row for row in read(tmp_path) if row["metric"] == "overlap"]
    assert {row["attack"]: row["value"] for row in mine if row["control"] is None} == want
    assert {row["control"] for row in mine} == {None, "untrained", "placebo"}
    (one,) = (row for row in mine if row["attack"] == "internal" and row["control"] is None)
    assert (one["ci_low"], one["ci_high"]) == (pytest.approx(want["internal"] - 0.1), 1.0)

    value = want["similarity"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert f"<small>overlap of both {value:.2f} [{value - 0.1:.2f}, 1.00]</small>" in text

    lines = terminal(report, width=100)
    (line,) = (one for one in lines if one.startswith("similarity"))
    at = next(i for i, one in enumerate(lines) if "AUC [low, high]" in one)
    assert "over-" in lines[at - 1] and "lap" in lines[at] and f"{value:.2f}" in line.split()

    # Observers read the declaration beside each row.
    assert {f.log for f, row in numbers(report) if row["metric"] == "overlap"} == {LOG}


def test_number__is_in_a_study(declared: None) -> None:
    runs = [make_run(seed=seed) for seed in (0, 1)]
    rows = [
        {**row, "run": f"run{i}", "seed": i, "point": "lr=0.1"}
        for i, run in enumerate(runs)
        for row in flatten(build.build_report(run))
    ]
    (mean,) = (
        one
        for one in over_points(pd.DataFrame(rows).assign(void=None)).to_dict("records")
        if (one["metric"], one["attack"]) == ("overlap", "similarity") and pd.isna(one["control"])
    )
    want = [round(overlap(run.attacks[0]), 6) for run in runs]
    assert (mean["n"], mean["point"]) == (2, "lr=0.1")
    assert mean["mean"] == pytest.approx(np.mean(want), abs=1e-6)
