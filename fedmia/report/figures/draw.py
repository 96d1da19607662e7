"""All figures of a report, by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fedmia.records import RunScores
from fedmia.records.as_json import to_json
from fedmia.records.rows import Report
from fedmia.report.figures import active, attacks, canvas, clients, rounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures(run: RunScores, report: Report) -> dict[str, Callable[[], Figure | None]]:
    """Name -> what draws it, of every figure that a run of its kind has, in the order of the page;
    it draws None where the run lacks the data.

    Args:
        run: the scores behind `report`.
        report: what `build_report(run)` returned.

    Returns:
        Name -> a function that draws the figure.
    """
    by_name: dict[str, Callable[[], Figure | None]] = {
        "attacks": partial(attacks.forest, report),
        "roc": partial(attacks.roc_curves, run, report),
        "clients": partial(clients.leakage, report),
        "clients-distribution": partial(clients.distribution, report),
        "cohorts": partial(clients.cohorts, report),
        "rounds": partial(rounds.leakage, report),
        "layers": partial(rounds.layers, report),
        "features": partial(attacks.scatter, run),
        "sweep": partial(attacks.by_value, report),
    }
    if run.curves is not None:
        act = run.curves.act
        by_name[act] = partial(active.by_round, run)
        by_name[f"{act}-losses"] = partial(active.distributions, run.curves)
    for act in dict.fromkeys(a.act for a in run.attacks if a.act):
        by_name[f"{act}-thresholds"] = partial(active.thresholds, run, report, act)
    by_name["holdings"] = partial(clients.holdings, report)
    return {name: canvas.apply_style(drawing) for name, drawing in by_name.items()}


def fingerprint(report: Report) -> str:
    """What a picture says of the report that it shows, so that pages can be compared with it.

    Args:
        report: of a run or an audit.

    Returns:
        SHA-256 in hexadecimal, of all of the report but `timing`, which differs between reruns.
    """
    numbers = {n: v for n, v in to_json(report, exact=True).items() if n != "timing"}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()


def draw_all(run: RunScores, report: Report) -> dict[str, bytes]:
    """Every figure that the run has data for.

    Args:
        run: the scores.
        report: made of them.

    Returns:
        NAME.png and NAME.pdf -> bytes, in the order of the page. The text `Report` of a PNG is the
        `fingerprint` of the report.
    """
    files, text = dict[str, bytes](), {"Report": fingerprint(report)}
    for name, one in figures(run, report).items():
        if (figure := one()) is not None:
            files[f"{name}.png"] = canvas.encode(figure, "png", text)
            figure.set_layout_engine(None)  # it stays as it was laid out for the PNG
            files[f"{name}.pdf"] = canvas.encode(figure, "pdf")
    return files
