"""What the server does with updates, as a row and in a sentence."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from fedmia.report.rows import AggregationRow, EpsilonRow, Report
from fedmia.results import Aggregation


def aggregation_row(done: Aggregation | None) -> AggregationRow:
    """The report's `aggregation`; what is made of None is left out of it."""
    done = done or Aggregation("")
    spent = None if done.epsilon is None else cast(EpsilonRow, asdict(done.epsilon))
    return {
        "name": done.name, "epsilon": spent, "view": done.view, "metrics": dict(done.metrics),
    }  # fmt: skip


def aggregation_sentence(report: Report) -> str | None:
    """The server's rule, its numbers, and all that its epsilon rests on; None of a plain mean by
    a server that sees each update."""
    row = report.get("aggregation")
    if row is None or (row["epsilon"] is None and not row["metrics"] and row["view"] == "updates"):
        return None
    told = ", ".join(f"{n.replace('_', ' ')} {v:.3g}" for n, v in row["metrics"].items())
    said = f"Server: {row['name']}{f' ({told})' if told else ''}"
    if row["view"] == "sums":
        said += ", which sees sums of updates alone (a view; nothing is encrypted)"
    spent = row["epsilon"]
    if spent is None:
        return f"{said}."
    value = "none" if spent["value"] is None else f"{spent['value']:.3g}"
    return (
        f"{said}. Epsilon of a client {value} (delta {spent['delta']:g}, {spent['rounds']} "
        f"rounds): {spent['standing']}. {spent['assumptions']}"
    )
