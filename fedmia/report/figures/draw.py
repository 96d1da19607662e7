"""All figures of a report, by name."""

from __future__ import annotations

from functools import partial

from fedmia.records import RunScores
from fedmia.report.figures import active, attacks, clients, rounds
from fedmia.report.rows import Report


def draw_all(run: RunScores, report: Report) -> dict[str, bytes]:
    """Name -> PNG of every figure that the run has data for, in the order of the page.

    Args:
        run: the scores behind `report`.
        report: what `build_report(run)` returned.
    """
    drawn = {name: draw() for name, draw in drawings(run, report).items()}
    return {name: data for name, data in drawn.items() if data is not None}


def drawings(run: RunScores, report: Report) -> dict[str, partial[bytes | None]]:
    """Name -> what draws the figure, None where the run has no data for it."""
    found = {
        "attacks": partial(attacks.forest, report),
        "roc": partial(attacks.roc_curves, run),
        "clients": partial(clients.leakage, report),
        "clients-distribution": partial(clients.distribution, report),
        "rounds": partial(rounds.leakage, report),
        "layers": partial(rounds.layers, report),
        "features": partial(attacks.scatter, run),
        "sweep": partial(attacks.by_value, report),
    }
    if run.curves is not None:
        act = run.curves.act
        found[act] = partial(active.by_round, run)
        found[f"{act}-losses"] = partial(active.distributions, run.curves)
    for act in dict.fromkeys(a.act for a in run.attacks if a.act):
        found[f"{act}-thresholds"] = partial(active.thresholds, run, report, act)
    return found | {"holdings": partial(clients.holdings, report)}
