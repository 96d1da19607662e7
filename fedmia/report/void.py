"""Whether anything follows from the numbers of a run."""

from __future__ import annotations

from fedmia.records.rows import Report
from fedmia.report.codes import VOID


def void_reason(report: Report) -> str | None:
    """Why what the attacks of a run score says nothing of its training.

    Args:
        report: of the run.

    Returns:
        The code of its verdict, or `collapsed` of a run that has another verdict on an encoder
        that has collapsed; None: its numbers count.
    """
    code, health = report.verdict_code, report.health
    if code in VOID:
        return code
    return "collapsed" if health is not None and health.collapsed else None
