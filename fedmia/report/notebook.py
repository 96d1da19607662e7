"""A report or a study as a piece of HTML for a notebook: no scripts, its style inside.

The colours are those of the notebook itself, light or dark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedmia.records.rows import Report
from fedmia.report.judgement import is_alarming
from fedmia.report.page import templates
from fedmia.report.report_tables import attacks
from fedmia.report.tables import name_of
from fedmia.report.words.meaning import TITLES

MOST = 8  # rows that are shown
LEAKS, DOUBT = "#c9483f", "#b07d12"  # red, amber: no other verdict is good news


def html_summary(report: Report, page: str = "report.html") -> str:
    """A report's verdict, its three boxes and its most leaking attacks.

    Args:
        report: what `fedmia.report.build.build_report` returned, or `report.json` of a run.
        page: where the whole report is, in words or as a path.

    Returns:
        HTML; every string in the report is escaped.
    """
    table = attacks(report)
    heads = [name_of(head) for head in table.head]
    rows = [dict(zip(heads, map(str, row), strict=True)) for row in table.rows]
    boxes = [(title, getattr(report, key)) for key, title in TITLES.items()]
    link = f"The whole report: {page}"
    return _render(rows, is_alarming(report), sentence=report.verdict, boxes=boxes, link=link)


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
    return _render(rows, "leaks" in counts, sentence=sentence, words=runs)


def _render(rows: Sequence[Mapping[str, Any]], leaks: bool, **texts: Any) -> str:
    context = {"rows": rows[:MOST], "more": max(0, len(rows) - MOST)}
    context |= {"colour": LEAKS if leaks else DOUBT, "boxes": (), "words": "", "link": ""}
    return templates().get_template("notebook.j2").render(**(context | texts))
