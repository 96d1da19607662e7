"""The table of all numbers: each number of a report once, under a key of its own."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fedmia.records import Evaluation
from fedmia.records.fields import SHARE, interval, number
from fedmia.records.rows import Report
from fedmia.report.publish import json_text, write_report
from tests.made_up_runs import columns, kind_at, made_up_report, table_rows
from tests.report.conftest import numbers, opened

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
KEY = ("run", "seed", "point", "branch", "subject", "round", "layer", "client", "attack",
       "baseline", "control", "family", "set_size", "target_fpr", "metric")  # fmt: skip
Row = dict[str, Any]


def repeated_keys(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    """Keys that more than one row has."""
    counts = Counter(tuple(row[name] for name in KEY) for row in rows)
    return [key for key, n in counts.items() if n > 1]


def golden(name: str) -> dict[str, Any]:
    return made_up_report(json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")))


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


def absent(report: dict[str, Any]) -> list[int]:
    """The numbers of a report that no row holds, each known by a number of its own."""
    counter = itertools.count(1000)
    rows = table_rows(numbered(report, counter))
    values = {v for row in rows for v in row.values() if isinstance(v, int | float)}
    return sorted(set(range(1000, next(counter))) - values)


@pytest.mark.parametrize("name", NAMES)
def test_table__gives_every_number_a_row_and_every_row_a_key(name: str) -> None:
    rows = table_rows(golden(name))
    assert len(rows) > 300 and not repeated_keys(rows)
    assert all([*row] == columns() for row in rows) and columns()[: len(KEY)] == [*KEY]
    assert not absent(golden(name))


def test_table__of_a_run_with_everything(whole: Report) -> None:
    content = json.loads(json_text(whole))
    rows = table_rows(content)
    assert not repeated_keys(rows) and not absent(content)
    swept = [r["subject"] for r in rows if r["family"] == "sweep" and r["metric"] == "auc"]
    assert swept == ["sweep/known/4", "sweep/known/9"]


def test_table__names_what_a_number_is_of() -> None:
    def one(**key: object) -> Row:
        (row,) = (r for r in rows if all(r[k] == v for k, v in key.items()))
        return row

    report = golden("active")
    rows, pair, attack = table_rows(report), report["paired"][0], report["attacks"][0]
    added = one(metric="auc_difference", subject="pair", attack="ascent", baseline="ascent-zero")
    assert added["value"] == pair["difference"]
    assert [added["ci_low"], added["ci_high"]] == pair["ci"]
    assert [added["low"], added["high"]] == [pair["low"], pair["high"]]
    rate = one(metric="tpr_at_fpr", attack=attack["name"], target_fpr=0.1, control=None)
    assert (rate["value"], rate["ci_low"]) == (attack["tpr_at_fpr"]["0.1"], 0.0)
    assert (rate["n_members"], rate["n_nonmembers"], rate["level"]) == (16, 52, 0.95)
    assert one(metric="knn", subject="utility", control="untrained")["value"] == 0.0
    tested = report["dataset_inference"][0]["clients"][0]
    found = one(metric="difference", subject="dataset_inference", client=0)
    assert (found["p"], found["p_adjusted"]) == (tested["p_value"], tested["p_value_holm"])
    spent = one(metric="epsilon", subject="client/defence", client=0)
    assert (spent["value"], spent["unit"]) == (96704.0, "client")
    assert one(metric="auc", control="pixels")["attack"] is None


def test_files__hold_one_table_whatever_the_clocks_say(
    run: Evaluation, report: Report, tmp_path: Path
) -> None:
    """As text, as a data frame, and of a run that took another time."""
    table = opened(tmp_path / "A", report, run).table
    lines = numbers(tmp_path / "A")
    assert [*lines[0]] == columns() == [*table.columns] and len(lines) == len(table)
    assert [float(line["value"]) for line in lines] == table["value"].to_list()
    assert [line["attack"] for line in lines] == table["attack"].fillna("").to_list()
    assert {line["run"] for line in lines} == {""}
    later = replace(report, timing={"total_s": 99.0}, versions={"torch": "9"})
    write_report(tmp_path / "A", run, later, {}, None)
    assert [{**a} for a in numbers(tmp_path / "A")] == lines[: len(lines)]


Attack: Any = kind_at("attacks")


@dataclass(frozen=True, kw_only=True)
class OverlapRow(Attack):  # type: ignore[misc]
    """A row that declares one number more, and its interval."""

    overlap: float | None = number("share of members that score low", SHARE, label="overlap")
    overlap_ci: tuple[float, float] | None = interval("overlap")


def test_number__that_a_row_declares_is_in_json_and_table(
    run: Evaluation, report: Report, tmp_path: Path
) -> None:
    rows: Any = [OverlapRow(**vars(row), overlap=0.25, overlap_ci=(0.1, 0.5))
                 for row in report.attacks]  # fmt: skip
    write_report(tmp_path, run, replace(report, attacks=rows), {})
    written = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [row["overlap"] for row in written["attacks"]] == [0.25] * 4
    mine = [row for row in numbers(tmp_path) if row["metric"] == "overlap"]
    assert [row["attack"] for row in mine] == [attack.name for attack in run.attacks]
    ends = {(row["value"], row["ci_low"], row["ci_high"], row["subject"]) for row in mine}
    assert ends == {("0.25", "0.1", "0.5", "attack")}
