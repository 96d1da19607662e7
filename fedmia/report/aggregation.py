"""What the server does with updates, as a row."""

from __future__ import annotations

from fedmia.report.lowerbounds import epsilon_row
from fedmia.report.rows import AggregationRow
from fedmia.results import Aggregation


def aggregation_row(done: Aggregation) -> AggregationRow:
    """The report's `aggregation`."""
    spent = None if done.epsilon is None else epsilon_row(done.epsilon, 1)
    return {
        "name": done.name, "epsilon": spent, "metrics": dict(done.metrics), "view": done.view,
    }  # fmt: skip
