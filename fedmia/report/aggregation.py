"""What the server does with updates, as a row."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from fedmia.report.rows import AggregationRow, EpsilonRow
from fedmia.results import Aggregation


def aggregation_row(done: Aggregation) -> AggregationRow:
    """The report's `aggregation`."""
    spent = None if done.epsilon is None else cast(EpsilonRow, asdict(done.epsilon))
    return {
        "name": done.name, "epsilon": spent, "metrics": dict(done.metrics), "view": done.view,
    }  # fmt: skip
