"""`series.html`: one page without scripts that opens offline."""

from __future__ import annotations

from urllib.parse import quote

from fedmia.report.page import picture, templates
from fedmia.report.tables import flat
from fedmia.series import tables
from fedmia.series.rows import SeriesReport

CAPTION = (
    "AUC of the most leaking attacks, and beneath it what use the encoder is. Bars: 95 % "
    "intervals, each by itself; dots: single seeds."
)


def page(report: SeriesReport, figure: bytes | None) -> str:
    """The whole HTML document.

    Args:
        report: every string in it is escaped.
        figure: PNG, or None.
    """
    whole = templates().get_template("series.j2")
    return whole.render(
        report=report,
        pictures={"curve": picture(CAPTION, figure)} if figure else {},
        attacks=tables.attacks(report),
        points=tables.points(report),
        models=tables.models(report),
        links=[
            (cell["name"], quote(f"{cell['path']}/report.html"), cell["verdict"])
            for cell in report["cells"]
            if cell["path"]
        ],
        missing=[(c["name"], c["reason"] or c["state"]) for c in report["cells"] if not c["path"]],
        about=flat(report["config"]),
    )
