"""Clients that failed: what the report says of them."""

from __future__ import annotations

from fedmia.records import Fault, RunScores
from fedmia.records.fields import row_of
from fedmia.records.rows import FaultRow


def fault_row(fault: Fault) -> FaultRow:
    """A row of `faults`."""
    return row_of(FaultRow, fault)


def fault_notes(run: RunScores) -> list[str]:
    """What became of clients that failed and did not stop the run."""
    lines = []
    for fault in run.faults:
        what = f"Client {fault.client} {fault.reason} in round {fault.round} of {fault.branch}"
        if fault.action == "retried":
            lines.append(f"{what}; it got its order again.")
        elif fault.action == "dropped":
            lines.append(f"{what} and was dropped: its images are in no statistic.")
    return lines
