"""A new number is a line in a record and its computation: all else reads these two."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import pytest
from rich.console import Console

from fedmia.observers._values import run_values
from fedmia.records import RunScores, ScoredAttack
from fedmia.records.attack_rows import AttackRow
from fedmia.records.fields import Field, fields_of
from fedmia.report import build
from fedmia.report.publish import write_report
from fedmia.report.terminal import render
from fedmia.study.spreads import over_models
from fedmia.table import Row, flatten, read

NUMBER = Field(label="overlap of both", head="over-\nlap", place=3, log="overlap/{attack}")


def overlap(attack: ScoredAttack) -> float:
    """Share of members that score under nine in ten non-members."""
    return float(np.mean(attack.scores_members < np.quantile(attack.scores_nonmembers, 0.9)))


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two files changed: the record declares the number, and its maker computes it."""
    as_it_was = build.attack_row

    def attack_row(attack: ScoredAttack, *more: Any) -> dict[str, Any]:
        value = overlap(attack)
        return {**as_it_was(attack, *more), "overlap": value, "overlap_ci": [value - 0.1, 1.0]}

    with monkeypatch.context() as patch:
        kinds = {
            "overlap": Annotated[float | None, NUMBER],
            "overlap_ci": Annotated[list[float] | None, None],
        }
        for name, kind in kinds.items():
            patch.setitem(AttackRow.__annotations__, name, kind)
        patch.setattr(build, "attack_row", attack_row)
        fields_of.cache_clear()
        yield
    fields_of.cache_clear()


def test_number__is_in_json_csv_page_terminal_observer_and_table(
    declared: None, run: RunScores, tmp_path: Path
) -> None:
    report = build.build_report(run)
    write_report(tmp_path, run, report, {})
    want = {attack.name: round(overlap(attack), 6) for attack in run.attacks}
    assert 0 < want["similarity"] < 1

    report_json = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert {row["name"]: row["overlap"] for row in report_json["attacks"]} == want

    mine = [row for row in read(tmp_path) if row["metric"] == "overlap"]
    assert {row["attack"]: row["value"] for row in mine if row["control"] is None} == want
    assert {row["control"] for row in mine} == {None, "untrained", "placebo"}
    (one,) = (row for row in mine if row["attack"] == "internal" and row["control"] is None)
    assert (one["low"], one["high"]) == (pytest.approx(want["internal"] - 0.1), 1.0)
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["metric"] == "overlap"]
    assert [float(line["value"]) for line in lines] == [row["value"] for row in mine]

    value = want["similarity"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert f"<small>overlap of both {value:.2f} [{value - 0.1:.2f}, 1.00]</small>" in text

    console = Console(width=100)
    with console.capture() as captured:
        console.print(render(report))
    (line,) = (one for one in captured.get().splitlines() if one.startswith("similarity"))
    assert "over-" in captured.get() and line.split()[-2] == f"{value:.2f}"

    logged = {k: v for k, v in run_values(report).items() if k.startswith("overlap")}
    assert logged == {f"overlap/{name}": value for name, value in want.items()}


def test_number__is_in_a_study(declared: None, make_run: Callable[..., RunScores]) -> None:
    runs = [make_run(seed=seed) for seed in (0, 1)]
    rows = [
        cast(Row, {**row, "run": f"run{i}", "seed": i, "point": "lr=0.1"})
        for i, run in enumerate(runs)
        for row in flatten(build.build_report(run))
    ]
    (mean,) = (
        one
        for one in over_models(rows)
        if (one["metric"], one["attack"], one["control"]) == ("overlap", "similarity", None)
    )
    want = [round(overlap(run.attacks[0]), 6) for run in runs]
    assert (mean["n"], mean["point"]) == (2, "lr=0.1")
    assert mean["mean"] == pytest.approx(np.mean(want), abs=1e-6)


def test_number__without_the_declaration_is_nowhere_else(run: RunScores, tmp_path: Path) -> None:
    report = build.build_report(run)
    write_report(tmp_path, run, report, {})
    assert not [row for row in read(tmp_path) if row["metric"] == "overlap"]
    assert "overlap of both" not in (tmp_path / "report.html").read_text(encoding="utf-8")
