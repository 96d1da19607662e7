"""The one table of a study, and every number of it over the models of its point.

A number that a report gains is here by its metric: no view has to name it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedmia import table
from fedmia.statistics.spread import spread
from fedmia.storage import durable
from fedmia.study.points import group_by_key
from fedmia.table import Row

PLACE = tuple(name for name in table.KEY if name not in ("run", "seed"))
POINTS = "points.csv"


def over_models(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Each number of the table over the models of its point: its place, `n`, `mean`, `low` and
    `high` (95 % between models), `sd`, `least`, `greatest`."""
    listed: Iterable[Any] = rows
    values = group_by_key((tuple(row[name] for name in PLACE), row["value"]) for row in listed)
    points = []
    for place, known in values.items():
        numbers: dict[str, Any] = {**spread(known, -math.inf, math.inf)}
        low, high = numbers.pop("ci") or (None, None)
        points.append({**dict(zip(PLACE, place, strict=True)), **numbers, "low": low, "high": high})
    return points


def write(rows: list[Row], out: Path) -> None:
    """table.parquet, table.csv and points.csv of a study; nothing of one without a run.

    Args:
        rows: the table of all runs.
        out: folder of the study.
    """
    if not rows:
        return
    table.write(rows, out)
    points = over_models(rows)
    text = io.StringIO(newline="")
    lines = csv.DictWriter(text, points[0], lineterminator="\n")
    lines.writeheader()
    lines.writerows(points)
    durable.write({out / POINTS: text.getvalue()})
