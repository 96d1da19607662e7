"""Who is exposed, in words."""

from __future__ import annotations

from fedmia.records.rows import Report
from fedmia.report.selection import FEW
from fedmia.report.void import void_reason

RARE = 0.1  # share of a list that may be there by chance, of one that is named for being clean


def exposed_sentence(report: Report) -> str | None:
    """How many of the list are told apart for certain; None without a list."""
    rows = report.exposed
    if not rows:
        return None
    attack, unit = rows[0].attack, "members" if rows[0].subject is None else "subjects"
    if void_reason(report) is not None:
        return (
            f"The list by {attack} names nobody as exposed: nothing follows from the scores of "
            "this report, as its verdict says."
        )
    best = max(rows, key=lambda row: (row.rank - row.most_false, -row.rank))
    if (sure := best.rank - best.most_false) <= 0:
        return (
            f"No list by {attack} holds: of the first {unit}, however many, all may be there by "
            "chance (95 %, all lists at once). Some may still be exposed, to another attack too."
        )
    text = (
        f"Of the first {best.rank:,} {unit} by {attack} at least {sure:,} are truly told apart "
        "from non-members"
    )
    clean = [row for row in rows if row.rank < best.rank and row.most_false <= RARE * row.rank]
    if clean and best.most_false > RARE * best.rank:
        rank, false = clean[-1].rank, clean[-1].most_false
        text += f"; of the first {rank} alone at least {rank - false}"
    text += " (95 %, all lists at once)."
    return f"{text} exposed.csv has all {rows[-1].rank:,}." if rows[-1].rank > FEW else text
