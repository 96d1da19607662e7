"""All figures of a report, by name."""

from __future__ import annotations

from fedmia.records import RunScores
from fedmia.report.figures import active, attacks, clients, rounds
from fedmia.report.rows import Report


def draw_all(run: RunScores, report: Report) -> dict[str, bytes]:
    """Name -> PNG of every figure that the run has data for, in the order of the page.

    Args:
        run: the scores behind `report`.
        report: what `build_report(run)` returned.
    """
    drawn = {
        "attacks": attacks.forest(report),
        "roc": attacks.roc_curves(run),
        "clients": clients.leakage(report),
        "clients-distribution": clients.distribution(report),
        "rounds": rounds.leakage(report),
        "layers": rounds.layers(report),
        "features": attacks.scatter(run),
        "sweep": attacks.by_value(report),
    }
    if run.curves is not None:
        act = run.curves.act
        drawn |= {act: active.by_round(run), f"{act}-losses": active.distributions(run.curves)}
    for act in dict.fromkeys(a.act for a in run.attacks if a.act):
        drawn[f"{act}-thresholds"] = active.thresholds(run, report, act)
    drawn["holdings"] = clients.holdings(report)
    return {name: data for name, data in drawn.items() if data is not None}
