"""What the server does with updates, as a row."""

from __future__ import annotations

from fedmia.records import Aggregation
from fedmia.report.lowerbounds import epsilon_row
from fedmia.report.rows import AggregationRow


def aggregation_row(done: Aggregation, bounds: int) -> AggregationRow:
    """The report's `aggregation`. `bounds`: lower bounds of epsilon that hold together."""
    spent = None if done.epsilon is None else epsilon_row(done.epsilon, bounds)
    return {
        "name": done.name, "epsilon": spent, "metrics": dict(done.metrics), "view": done.view,
    }  # fmt: skip
