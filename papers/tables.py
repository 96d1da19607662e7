"""The table of an entry: ours beside theirs, as CSV and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmia.report import csvs
from fedmia.report.format import estimate
from fedmia.report.page import templates
from fedmia.storage.durable import make_folder, write
from papers.cells import Reading, Row, Rows, read_cell
from papers.claims.over_targets import Readings
from papers.entries import Entry, TableCell
from papers.jobs import JobFolder
from papers.listing import TEMPLATES

FINISHED, FAILED, WAITING, NOT_RUN = "finished", "failed", "not finished", "not run"
OF_CELL = ("level", "row", "column", "theirs", "theirs_sd")
OF_READING = ("low", "high", "interval", "n_members", "n_nonmembers")
HEADS = (*OF_CELL, "ours", *OF_READING, "targets", "seeds", "seconds", "state", "reason")


def readings_of(cells: Sequence[TableCell], folder: JobFolder) -> Readings:
    """The numbers of the cells that are finished.

    Args:
        cells: of an entry.
        folder: of the jobs.

    Returns:
        (level, row, column) -> its number.
    """
    numbers = {(c.level, c.row, c.column): read_cell(c, folder) for c in cells if c.jobs}
    return {place: number for place, number in numbers.items() if number is not None}


def table_rows(
    cells: Sequence[TableCell], readings: Readings, folder: JobFolder, failed: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A row a cell.

    Args:
        cells: of an entry.
        readings: their numbers.
        folder: of the jobs.
        failed: key of each job that failed -> why.

    Returns:
        The rows, with the keys `HEADS`. `seconds` is of all its jobs, those that other cells share
        among them.
    """
    rows = []
    for cell in cells:
        reading = readings.get((cell.level, cell.row, cell.column), Reading(None))
        chain = {one.key: one for job in cell.jobs for one in job.chain()}
        done = [folder.done(one) for one in chain.values()]
        seconds = sum(facts["seconds"] for facts in done if facts is not None)
        reason = next((failed[key] for key in chain if key in failed), cell.reason)
        state = NOT_RUN if not cell.jobs else FAILED if reason else FINISHED
        if state == FINISHED and not all(folder.done(job) for job in cell.jobs):
            state = WAITING
        if state == FINISHED and reading.value is None:
            reason = "its job has no such number: too few images, or the attack could not run"
        rows.append(
            {name: getattr(cell, name) for name in OF_CELL}
            | {"ours": reading.value}
            | {name: getattr(reading, name) for name in OF_READING}
            | {"targets": len(reading.by_seed), "seeds": ", ".join(map(str, reading.by_seed))}
            | {"seconds": round(seconds, 1)}
            | {"state": state, "reason": reason}
        )
    return rows


def write_table(entry: Entry, scale: str, rows: Rows, facts: Row, folder: Path) -> Path:
    """Write ENTRY.csv and ENTRY.md.

    Args:
        entry: what the table is of.
        scale: at which it was made.
        rows: as `table_rows` returns them.
        facts: versions, hardware, commit and command.
        folder: of the files; made where it is missing.

    Returns:
        The path of the Markdown file.
    """
    make_folder(folder, folder.parent)
    # Each choice that the paper leaves open is a column, so that tables of several choices stack.
    chosen = {f"open: {name}": value for name, value in entry.open.items()}
    lines = [[*(row[head] for head in HEADS), scale, *chosen.values()] for row in rows]
    path = folder / f"{entry.name}.md"
    write(
        {
            folder / f"{entry.name}.csv": csvs.text([*HEADS, "scale", *chosen], lines),
            path: markdown(entry, scale, rows, facts),
        }
    )
    return path


def markdown(entry: Entry, scale: str, rows: Rows, facts: Row) -> str:
    """The table as Markdown: a line a row of the paper, a column a column of it.

    Args:
        entry: what the table is of.
        scale: at which it was made.
        rows: as `table_rows` returns them.
        facts: as of `write_table`.

    Returns:
        The text.
    """
    by_level: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        lines = by_level.setdefault(row["level"], {})
        lines.setdefault(row["row"], {})[row["column"]] = f"{_ours(row)} | {_theirs(row)}"
    finished = [row for row in rows if row["state"] == FINISHED]
    reasons = {row["reason"] for row in rows if row["state"] != FINISHED}
    return _render(
        "reproduced_table",
        entry=entry,
        scale=scale,
        columns=list(dict.fromkeys(row["column"] for row in rows)),
        by_level=by_level,
        targets=sorted({(row["targets"], row["seeds"]) for row in finished}),
        intervals=sorted({row["interval"] for row in finished} - {""}, reverse=True),
        scored=sorted({(r["n_members"], r["n_nonmembers"]) for r in finished if r["n_nonmembers"]}),
        reasons=sorted(reasons - {""}),
        **facts,
    )


def write_claims(claims: Rows, scale: str, folder: Path) -> None:
    """Write claims.csv and claims.md, a table a paper.

    Args:
        claims: as `judge_claims` returns them.
        scale: at which they were judged.
        folder: of the files.
    """
    text = csvs.text([*claims[0]], [[*claim.values()] for claim in claims])
    papers = list(dict.fromkeys(claim["paper"] for claim in claims))
    page = _render("reproduced_claims", claims=claims, papers=papers, scale=scale)
    write({folder / "claims.csv": text, folder / "claims.md": page})


def _render(template: str, **content: Any) -> str:
    markdown_pages = templates(TEMPLATES).overlay(autoescape=False)
    return markdown_pages.get_template(f"{template}.md.j2").render(content)


def _ours(row: Row) -> str:
    if row["ours"] is None:
        return row["state"] if row["state"] != FINISHED else "-"
    return estimate(row["ours"], None if row["low"] is None else (row["low"], row["high"]), 3)


def _theirs(row: Row) -> str:
    if row["theirs"] is None:
        return ""
    sd = "" if row["theirs_sd"] is None else f" ± {row['theirs_sd']:g}"
    return f"{row['theirs']:g}{sd}"
