"""report.json is what `fedmia.records.rows` says: every key, and a value of its type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from fedmia.records.fields import mismatches
from fedmia.records.rows import Report

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
VARYING = {"timing", "versions", "hardware"}


def test_report__of_a_run_with_everything(whole: Report) -> None:
    assert not list(mismatches(json.loads(json.dumps(whole)), Report, "report"))
    # `client_counts` is of reports that do not list every client.
    assert [name for name in get_type_hints(Report) if name != "client_counts"] == list(whole)


@pytest.mark.parametrize("name", ["active", "server", "audit"])
def test_report__of_the_golden_runs(name: str) -> None:
    report = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    lines = mismatches(report, Report, "report")
    assert set(lines) == {f"report.{name}: missing" for name in VARYING}


def test_mismatches__sees_a_misspelt_key_and_a_wrong_type(whole: Report) -> None:
    report: Any = json.loads(json.dumps(whole))
    report.attacks[0]["acuracy"] = 0.5
    report.rounds[4].leakage["similarity"] = "high"
    del report.family.method
    report.clients[1].defence.epsilon.value = [8]
    fields = {line.partition(":")[0] for line in mismatches(report, Report, "report")}
    assert fields == {
        "report.attacks[0].acuracy", "report.rounds[4].leakage.similarity", "report.family.method",
        "report.clients[1].defence",
    }  # fmt: skip
