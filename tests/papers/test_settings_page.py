"""docs/papers/settings.md: which settings of a table are its paper's, and why others are not.

`python -m tests.papers.test_settings_page` writes the page.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from papers.entries import read_entries
from papers.listing import read_files
from tests.papers.test_against_presets import against_presets

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers" / "settings.md"
HEAD = """# Settings of the papers' tables

Each paper has presets, whose values name their source in the paper or in its official code. Here
are the tables of `python -m papers` at `--scale paper`, and the primary questions, which are asked
at `--scale small`, beside them, setting by setting. A cell *equals* its preset where every setting
of its jobs does, but for what the table itself varies. The settings of the others stand here with
the reason.
"""


@functools.cache  # they take some ten seconds
def rows() -> list[Any]:
    """Of each table that its paper has: paper, name, cells, those equal, path -> reason."""
    return [row for row in against_presets() if row[2]]


def cell(text: object) -> str:
    return str(text).replace("|", "\\|")


def table(head: str, rows: list[list[object]]) -> str:
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *lines]) + "\n"


def page() -> str:
    papers = {row[0]: [one for one in rows() if one[0] == row[0]] for row in rows()}
    counts: list[list[object]] = [
        [
            paper,
            len(its),
            cells := sum(r[2] for r in its),
            equal := sum(r[3] for r in its),
            cells - equal,
        ]
        for paper, its in papers.items()
    ]
    parts = [HEAD, table("| Paper | Tables | Cells | Equal | Otherwise |", counts)]
    for paper, its in papers.items():
        reasons = ["; ".join(f"`{path}`: {why}" for path, why in r[4].items()) for r in its]
        lines: list[list[object]] = [
            [f"`{r[1]}`", *r[2:4], why] for r, why in zip(its, reasons, strict=True)
        ]
        parts += [f"## {read_files()[paper]['title']}\n"]
        parts += [table("| Table | Cells | Equal | Otherwise, and why |", lines)]
        entries = [entry for entry in read_entries().values() if entry.paper == paper]
        choices = {k: why for e in entries for k, why in e.open.items() if "." not in k}
        if choices and paper != "primaries":  # which argues for each of its questions
            parts += ["What the paper leaves open, or what is done in another way:\n"]
            parts += ["".join(f"- *{key}*: {why}\n" for key, why in choices.items())]
    return "\n".join(parts)


def test_page__is_that_of_the_tables() -> None:
    """Where it is not, the module writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_settings__that_are_not_the_papers_have_a_reason() -> None:
    assert sum(row[3] for row in rows()) > 1000
    assert not [(row[1], path) for row in rows() for path, why in row[4].items() if not why]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
