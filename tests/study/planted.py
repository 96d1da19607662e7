"""Studies made of reports that a test writes, without a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedmia.records.rows import Report
from fedmia.report.codes import VOID
from fedmia.storage.json_rows import from_json
from fedmia.study.cells import facts
from fedmia.study.result import StudyResult
from fedmia.table import COLUMNS, flatten

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
Run = tuple[str, Mapping[str, Any], int, Any]  # point, grid, seed, and report or why it failed


def golden(name: str = "active") -> dict[str, Any]:
    """A report of a real run, with the times and versions of none, as JSON has it."""
    report: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    more = {"versions": {"commit": None}, "hardware": {}, "timing": {"total_s": 1.5}}
    return report | more


def study_of(
    runs: Iterable[Run],
    views: tuple[str, ...] = ("sweep",),
    folder: Path = Path("STUDY"),
    **settings: Any,
) -> StudyResult:
    """A study of these runs, those of one point together."""
    cells, rows = [], []
    for point, grid, seed, report in runs:
        name = "_".join([*(f"{path}={value}" for path, value in grid.items()), f"seed={seed}"])
        cell = {"name": name, "point": point, "grid": dict(grid), "seed": seed}
        if isinstance(report, Mapping):
            place: Any = {"run": name, "seed": seed, "point": point}
            whole = from_json(Report, report, "report")
            rows += [{**row, **place} for row in flatten(whole)]
            cell |= {"state": "finished", "path": f"cells/{name}", **facts(whole)}
        else:
            cell |= {"state": "failed" if report else "not run", "reason": report}
        cells.append(cell)
    about = {"cells": cells, "views": list(views), "settings": settings, "timing": {}}
    study = StudyResult(folder, about, True)
    study.table = pd.DataFrame(rows, columns=list(COLUMNS))
    return study


def study_of_rows(
    rows: list[Any], codes: Mapping[str, list[str]] | None = None, **settings: Any
) -> StudyResult:
    """A study of a table that a test writes, with the verdicts of each point's runs."""
    cells = [
        {"name": f"{point}_{seed}", "point": point, "grid": {}, "seed": seed, "state": "finished",
         "verdict_code": code, "void": code if code in VOID else None}
        for point, listed in (codes or {}).items() for seed, code in enumerate(listed)
    ]  # fmt: skip
    study = StudyResult(
        Path("STUDY"), {"cells": cells, "views": ["baseline"], "settings": settings}
    )
    study.table = pd.DataFrame(rows, columns=list(COLUMNS))
    return study
