"""What a study holds, made of the reports of its finished runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedmia.records.rows import Report
from fedmia.settings.commands.study import Cell, Study
from fedmia.storage.manifest import FORMAT
from fedmia.study.cells import facts
from fedmia.study.result import StudyResult
from fedmia.table import Row, flatten

STATES = ("finished", "failed", "not run")
Finished = Mapping[str, tuple[Path, Report]]  # key of a run -> its folder and report


def gather(
    out: Path,
    settings: Study,
    runs: Iterable[Cell],
    names: Mapping[str, str],
    finished: Finished,
    failed: Mapping[str, str],
) -> tuple[StudyResult, list[Row]]:
    """A study as far as its runs are done; no file is written.

    Args:
        out: its folder.
        settings: of the study.
        runs: that are asked for, all points at the first seed first.
        names: key of each run -> name of its folder.
        finished: those that are.
        failed: name of each run that failed -> why.

    Returns:
        The study, and the rows of its table.
    """
    cells, rows = list[dict[str, Any]](), list[Row]()
    runs, points = list(runs), len(settings.points)
    for cell in (cell for i in range(points) for cell in runs[i::points]):
        name, state = names[cell.key], {"state": "not run"}
        if cell.key in finished:
            path, report = finished[cell.key]
            name, where = path.name, path.relative_to(out).as_posix()
            state = {"state": "finished", "path": where, **facts(report)}
            place = {"run": name, "seed": cell.seed, "point": cell.point}
            rows += [{**row, **place} for row in flatten(report)]
        elif name in failed:
            state = {"state": "failed", "reason": failed[name]}
        grid = dict(cell.grid)
        cells.append({"name": name, "point": cell.point, "grid": grid, "seed": cell.seed, **state})
    states = Counter(cell["state"] for cell in cells)
    about = {
        "format": FORMAT,
        "sentence": "",
        "views": list(settings.views),
        "seeds": sorted({cell.seed for cell in runs}),
        **{name.replace(" ", "_"): states[name] for name in STATES},
        "notes": [],
        "cells": cells,
        "settings": settings.tree(),
        "timing": {},
    }
    return StudyResult(out, about, True), rows
