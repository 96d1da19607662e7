"""`sweep.html`: one page without scripts that compares the runs and leads to the page of each.

Its own figures are inside; those of the runs are read from their folders beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from fedmia.report.page import picture, templates
from fedmia.report.tables import flat
from fedmia.sweeping import tables
from fedmia.sweeping.rows import CellRow, SweepReport

MAIN = ("attacks", "roc", "rounds")  # figures of a run, the first that it has stands for it
CAPTIONS: Mapping[str, str] = {
    "attacks": "AUC of each attack by point of the grid: a dot a model, around them the mean "
    "and its 95 % interval between models.",
    "pairs": "What each attack adds to its paired control: a dot a model, around them the mean "
    "and its 95 % interval between models.",
}


def page(report: SweepReport, figures: Mapping[str, bytes], out: Path) -> str:
    """The whole HTML document.

    Args:
        report: every string in it is escaped.
        figures: name -> PNG.
        out: folder of the sweep, where the figures of its runs are looked for.
    """
    whole = templates().get_template("sweep.j2")
    return whole.render(
        report=report,
        over=", ".join(tables.options(report)) or "seeds",
        tables={
            "attacks": tables.attacks(report),
            "pairs": tables.pairs(report),
            "sets": tables.sets(report),
            "points": tables.points(report),
            "differences": tables.differences(report),
        },
        pictures={name: picture(CAPTIONS[name], png) for name, png in figures.items()},
        cards=[_card(cell, out) for cell in report["cells"] if cell["path"] is not None],
        missing=[
            (cell["name"], cell["reason"] or cell["state"])
            for cell in report["cells"]
            if cell["path"] is None
        ],
        about=flat(report["config"]),
    )


def _card(cell: CellRow, out: Path) -> dict[str, str]:
    path, results = str(cell["path"]), cell["results"]
    files = [f"{path}/figures/{name}.png" for name in MAIN]
    figure = next((quote(file) for file in files if (out / file).is_file()), "")
    return {
        "name": cell["name"],
        "code": results["verdict_code"] if results else "",
        "verdict": results["verdict"] if results else "",
        "link": quote(f"{path}/report.html"),
        "figure": figure,
    }
