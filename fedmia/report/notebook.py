"""A report or a study as a piece of HTML for a notebook: no scripts, its style inside.

The colours are those of the notebook itself, light or dark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedmia.records.rows import Report
from fedmia.report.answers import TITLES
from fedmia.report.format import estimate, most_leaking_first, rounds_of
from fedmia.report.page import templates
from fedmia.report.plain import is_refuted, plain_verdict

MOST = 8  # rows that are shown
LEAKS, DOUBT = "#c9483f", "#b07d12"  # red, amber: no other verdict is good news


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
    return _render(
        plain_verdict(report), rows, report["verdict_code"] == "leaks" or is_refuted(report),
        boxes=boxes, exact=report["verdict"], link=f"The whole report: {page}",
    )  # fmt: skip


def html_study(
    sentence: str, rows: Sequence[Mapping[str, Any]], verdict_codes: Iterable[str]
) -> str:
    """A study's sentence, how many of its runs have which verdict, and the first rows of its table.

    Args:
        sentence: what a reader should take home.
        rows: of the table, each column -> value.
        verdict_codes: `verdict_code` of each run that has a report.

    Returns:
        HTML, red where a run leaks, else amber; every string is escaped.
    """
    counts = Counter(verdict_codes)
    words = [f"{code.replace('-', ' ')}: {count}" for code, count in counts.most_common()]
    runs = f"Verdicts of the runs: {', '.join(words)}" if words else "No run has a verdict yet."
    return _render(sentence, rows, "leaks" in counts, words=runs)


def _render(
    sentence: str,
    rows: Sequence[Mapping[str, Any]],
    leaks: bool,
    *,
    boxes: Sequence[tuple[str, str]] = (),
    words: str = "",
    exact: str = "",
    link: str = "",
) -> str:
    more = max(0, len(rows) - MOST)
    return templates().get_template("notebook.j2").render(
        sentence=sentence, boxes=boxes, rows=[dict(row) for row in rows[:MOST]], more=more,
        colour=LEAKS if leaks else DOUBT, words=words, exact=exact, link=link,
    )  # fmt: skip
