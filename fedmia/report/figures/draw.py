"""All figures of a report, by name."""

from __future__ import annotations

import hashlib
import json

from fedmia.records import Evaluation
from fedmia.records.rows import Report
from fedmia.report.figures import active, attacks, canvas, clients, exposed, features, roc, rounds
from fedmia.report.figures.base import ReportFigure
from fedmia.storage.json_rows import to_json


def figures(report: Report, run: Evaluation | None = None) -> dict[str, ReportFigure]:
    """Name -> every figure that a report of its kind has, in the order of the page; each draws
    None where the report lacks the data.

    Args:
        report: what `build_report(run)` returned.
        run: the scores behind it; None: without the figures that show scores.

    Returns:
        The figures by name.
    """
    of_scores: list[ReportFigure] = []
    acted: list[ReportFigure] = []
    if run is not None:
        of_scores = [roc.RocCurves(report, run), features.Features(report, run)]
        of_scores.append(exposed.Strip(report, run))
        if run.curves is not None:
            acted = [
                active.LossByRound(report, run.curves),
                active.LossBeforeAfter(report, run.curves),
            ]
        acts = dict.fromkeys(attack.act for attack in run.attacks if attack.act)
        acted += [active.AccuracyByThreshold(report, run, act) for act in acts]
    every = [
        attacks.Forest(report),
        *of_scores,
        attacks.Sweep(report),
        clients.ClientHistogram(report),
        clients.LeakageByCohort(report),
        clients.LeakageByClient(report),
        clients.Holdings(report),
        rounds.LeakageByRound(report),
        rounds.LeakageByLayer(report),
        *acted,
    ]
    return {one.name: one for one in every}


def fingerprint(report: Report) -> str:
    """What a picture says of the report that it shows, so that pages can be compared with it.

    Args:
        report: of a run or an audit.

    Returns:
        SHA-256 in hexadecimal, of all of the report but `timing`, which differs between reruns.
    """
    numbers = {n: v for n, v in to_json(report, exact=True).items() if n != "timing"}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()


def draw_all(run: Evaluation, report: Report) -> dict[str, bytes]:
    """Every figure that the run has data for.

    Args:
        run: the scores.
        report: made of them.

    Returns:
        NAME.png and NAME.pdf -> bytes, in the order of the page. The text `Report` of a PNG is the
        `fingerprint` of the report; its `Description`, and the subject of a PDF, is what a reader
        who cannot see the figure must know.
    """
    files, digest = dict[str, bytes](), fingerprint(report)
    for name, one in figures(report, run).items():
        if (figure := one.draw()) is not None:
            about = {"Report": digest, "Description": one.alt()}
            files[f"{name}.png"] = canvas.encode(figure, "png", about)
            figure.set_layout_engine(None)  # it stays as it was laid out for the PNG
            files[f"{name}.pdf"] = canvas.encode(figure, "pdf", {"Subject": one.alt()})
    return files
