"""`tradeoff.html`: one page without scripts that opens offline."""

from __future__ import annotations

from fedmia.report.page import picture, templates
from fedmia.report.tables import flat
from fedmia.tradeoffs import tables
from fedmia.tradeoffs.choice import COSTS
from fedmia.tradeoffs.rows import TradeoffReport

CAPTION = (
    "Use against privacy: down and to the right is better. A line leads from mild to strong, "
    "beside each point stands its strength. Bars: 95 % intervals between models, each by itself."
)


def page(report: TradeoffReport, figure: bytes | None) -> str:
    """The whole HTML document.

    Args:
        report: every string in it is escaped.
        figure: PNG, or None.
    """
    return (
        templates()
        .get_template("tradeoff.j2")
        .render(
            report=report,
            pictures={"tradeoff": picture(CAPTION, figure)} if figure else {},
            points=tables.points(report),
            attacks=tables.attacks(report),
            groups=tables.groups(report),
            lost=tables.lost(report),
            front=[point["label"] for point in report["points"] if point["front"]],
            about=flat(report["config"]),
            costs=COSTS,
        )
    )
