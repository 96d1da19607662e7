"""The report's files in a run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedmia.report.csvfile import scores_csv, sweep_csv
from fedmia.report.page import page
from fedmia.report.rows import Report
from fedmia.results import RunScores


def json_text(report: Mapping[str, object]) -> str:
    """`report` as strict JSON, indented, ending in a newline.

    Raises:
        ValueError: a number that is not finite.
    """
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_report(
    folder: Path, run: RunScores, report: Report, figures: Mapping[str, bytes]
) -> list[Path]:
    """Write report.json, report.html, scores.csv, sweep.csv where there was a sweep, and
    figures/NAME.png; returns their paths.

    `report` is what `build_report(run)` returned, with `timing` filled in by the caller if it was
    not known before; `figures` is what `draw_all` returned.
    """
    pictures = folder / "figures"
    texts = {
        folder / "report.json": json_text(report),
        folder / "report.html": page(report, figures),
        folder / "scores.csv": scores_csv(run),
    }
    if swept := report.get("sweep"):
        texts[folder / "sweep.csv"] = sweep_csv(swept)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    written = list(texts)
    if figures:
        pictures.mkdir(exist_ok=True)
    for name, data in figures.items():
        path = pictures / f"{name}.png"
        path.write_bytes(data)
        written.append(path)
    return written
