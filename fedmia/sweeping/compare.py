"""From the reports of a sweep's runs to `sweep.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmia.config.experiment import Experiment
from fedmia.config.sweep import Cell, Sweep
from fedmia.report.rows import Report
from fedmia.sweeping.points import differences, point_rows
from fedmia.sweeping.results import results
from fedmia.sweeping.rows import FORMAT, CellRow, SweepReport


def compare(
    sweep: Sweep,
    names: Mapping[str, str],
    finished: Mapping[str, tuple[str, Report]],
    failed: Mapping[str, str],
    seconds: float,
) -> SweepReport:
    """The whole of `sweep.json`.

    Args:
        names: key of each run -> its name.
        finished: key -> folder under that of the sweep, and report.
        failed: key -> why.
        seconds: that the sweep took this time.
    """
    cells = [_cell(cell, names[cell.key], finished, failed) for cell in by_point(sweep)]
    states = [cell["state"] for cell in cells]
    took = {names[key]: report["timing"].get("total_s") for key, (_, report) in finished.items()}
    return {
        "format": FORMAT,
        "sentence": sentence(cells),
        "grid": sweep.tree()["grid"],
        "seeds": sorted({cell.seed for cell in sweep.cells}),
        "finished": states.count("finished"),
        "failed": states.count("failed"),
        "not_run": states.count("not run"),
        "cells": cells,
        "points": point_rows(cells),
        "differences": list(differences(cells)),
        "notes": notes(cells, sweep),
        "config": sweep.tree(),
        "timing": {"total_s": round(seconds, 3), "runs": took},
    }


def sentence(cells: Sequence[CellRow]) -> str:
    """How many runs are finished, and how many of them leak."""
    found = [cell["results"] for cell in cells if cell["results"] is not None]
    leaks = sum(results["verdict_code"] == "leaks" for results in found)
    said = f"{len(found)} of {len(cells)} runs are finished; {leaks} of them leak membership"
    failed = sum(cell["state"] == "failed" for cell in cells)
    return said + (f"; failed and left out: {failed}." if failed else ".")


def notes(cells: Sequence[CellRow], sweep: Sweep) -> list[str]:
    """What a reader of the means must know."""
    found = []
    if sweep.seeds == 1:
        found.append(
            "One seed: there is no interval between models. Five or more seeds give one worth "
            "having."
        )
    commits = {c["results"]["commit"] for c in cells if c["results"] is not None}
    if len(commits) > 1:
        found.append(f"The runs are of {len(commits)} commits of fedmia.")
    missing = [cell["name"] for cell in cells if cell["results"] is None]
    if missing:
        found.append(f"Left out of every mean: {', '.join(missing)}.")
    return found


def by_point(sweep: Sweep) -> list[Cell[Experiment]]:
    """Its runs, those of one point together."""
    count = len(sweep.cells) // sweep.seeds
    return [cell for i in range(count) for cell in sweep.cells[i::count]]


def _cell(
    cell: Cell[Experiment],
    name: str,
    finished: Mapping[str, tuple[str, Report]],
    failed: Mapping[str, str],
) -> CellRow:
    key = cell.key
    path, report = finished.get(key, (None, None))
    state = "finished" if report else "failed" if key in failed else "not run"
    return {
        "name": name if path is None else Path(path).name,
        "grid": dict(cell.grid),
        "seed": cell.seed,
        "state": state,
        "reason": failed.get(key),
        "path": path,
        "results": None if report is None else results(report),
    }
