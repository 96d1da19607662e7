"""All figures of a report, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmia.report.figures import ascent, attacks, clients, rounds, sweep
from fedmia.results import RunScores


def draw_all(run: RunScores, report: Mapping[str, Any]) -> dict[str, bytes]:
    """Name -> PNG of every figure that the run has data for, in the order of the page.

    Args:
        run: the scores behind `report`.
        report: what `build_report(run)` returned.
    """
    drawn = {
        "attacks": attacks.forest(report),
        "roc": attacks.roc_curves(run),
        "clients": clients.leakage(report),
        "rounds": rounds.leakage(report),
        "layers": rounds.layers(report),
        "features": attacks.scatter(run),
        "sweep": sweep.by_value(report),
        "ascent": ascent.by_round(run),
        "ascent-losses": ascent.distributions(run),
        "ascent-thresholds": ascent.thresholds(run, report),
        "holdings": clients.holdings(report),
    }
    return {name: data for name, data in drawn.items() if data is not None}
