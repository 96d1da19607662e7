"""A report or a study as a piece of HTML for a notebook: no scripts, its style inside.

The colours are those of the notebook itself, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmia.records.rows import Report
from fedmia.report.answers import TITLES
from fedmia.report.format import estimate, most_leaking_first, rounds_of
from fedmia.report.page import templates

MOST = 8  # rows that are shown


def html_summary(report: Report, page: str = "report.html") -> str:
    """A report's three boxes and its most leaking attacks.

    Args:
        report: what `fedmia.report.build.build_report` returned, or `report.json` of a run.
        page: where the whole report is, in words or as a path.

    Returns:
        HTML; every string in the report is escaped.
    """
    rows = []
    for row in most_leaking_first(report["attacks"]):
        rates, ends = row["tpr_at_fpr"], row["tpr_at_fpr_ci"]
        rows.append(
            {
                "attack": row["name"],
                "model (round)": rounds_of(row) or "the last",
                "AUC, simultaneous 95 %": estimate(row["auc"], row["auc_ci_simultaneous"]),
                "TPR at 1 % FPR": estimate(rates["0.01"], ends["0.01"]),
                "members + non-members": f"{row['n_members']} + {row['n_nonmembers']}",
            }
        )
    if not any(row["rounds"] for row in report["attacks"]):  # a model of no run
        rows = [{k: v for k, v in row.items() if k != "model (round)"} for row in rows]
    boxes = [(title, str(report.get(key))) for key, title in TITLES.items() if report.get(key)]
    leaks = report["verdict_code"] == "leaks"
    return _render(report["verdict"], boxes, rows, leaks, f"The whole report: {page}")


def html_study(sentence: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A study's sentence and the first rows of its table.

    Args:
        sentence: what a reader should take home.
        rows: of the table, each column -> value.

    Returns:
        HTML; every string is escaped.
    """
    return _render(sentence, [], rows, False, "")


def _render(
    sentence: str,
    boxes: Sequence[tuple[str, str]],
    rows: Sequence[Mapping[str, Any]],
    leaks: bool,
    link: str,
) -> str:
    more = max(0, len(rows) - MOST)
    return templates().get_template("notebook.j2").render(
        sentence=sentence, boxes=boxes, rows=[dict(row) for row in rows[:MOST]], more=more,
        colour="#c9483f" if leaks else "#b07d12", link=link,
    )  # fmt: skip
