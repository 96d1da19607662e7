"""Where some clients defend themselves and others do not: what each of the two groups leaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmia.config.tradeoff import Tradeoff
from fedmia.report.rows import Report
from fedmia.statistics.spread import spread
from fedmia.sweeping.compare import by_point
from fedmia.tradeoffs.points import BySeed, change
from fedmia.tradeoffs.rows import TradeGroups, TradePoint

DEFENDED, UNDEFENDED = "defended", "undefended"  # as reports name them


def split(
    found: Sequence[TradePoint], tradeoff: Tradeoff, finished: Mapping[str, tuple[str, Report]]
) -> None:
    """Fill in `groups` of each point whose reports have both groups.

    Args:
        found: the points of the trade-off.
        finished: key of each finished run -> its folder, and its report.
    """
    cells = by_point(tradeoff.sweep)
    for i, point in enumerate(found):
        own = cells[i * tradeoff.seeds : (i + 1) * tradeoff.seeds]
        reports = {c.seed: finished[c.key][1] for c in own if c.key in finished}
        point["groups"] = _groups(reports, point["best"])


def _groups(reports: Mapping[int, Report], attack: str | None) -> TradeGroups | None:
    """Both groups over the models of one point; None where one of them has no AUC in any."""
    ours, theirs = (_aucs(reports, group, attack) for group in (DEFENDED, UNDEFENDED))
    if not ours or not theirs:
        return None
    return {
        "defended": spread(ours.values()),
        "undefended": spread(theirs.values()),
        "difference": change(ours, theirs),
    }


def _aucs(reports: Mapping[int, Report], group: str, attack: str | None) -> BySeed:
    """Seed -> AUC of an attack on the members of one group."""
    return {
        seed: row["auc"]
        for seed, report in reports.items()
        if report["defended"] is not None
        for held in report["defended"]["groups"]
        for row in held["leakage"]
        if held["group"] == group and row["attack"] == attack
    }
