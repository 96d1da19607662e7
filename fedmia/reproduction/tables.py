"""The table of an entry: ours beside theirs, as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedmia.reproduction.cells import Reading, read_cell
from fedmia.reproduction.claims import ClaimResult, Readings
from fedmia.reproduction.entries import Entry, TableCell
from fedmia.reproduction.jobs import JobFolder
from fedmia.storage.durable import make_folder, write

FINISHED, FAILED, WAITING, NOT_RUN = "finished", "failed", "not finished", "not run"
HEADS = (
    "level", "row", "column", "theirs", "theirs_sd", "ours", "low", "high", "interval",
    "n_members", "n_nonmembers", "targets", "seconds", "state", "reason",
)  # fmt: skip


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
            {
                "level": cell.level,
                "row": cell.row,
                "column": cell.column,
                "theirs": cell.theirs,
                "theirs_sd": cell.theirs_sd,
                "ours": reading.value,
                "low": reading.low,
                "high": reading.high,
                "interval": reading.interval,
                "n_members": reading.n_members,
                "n_nonmembers": reading.n_nonmembers,
                "targets": len(reading.values),
                "seconds": round(seconds, 1),
                "state": state,
                "reason": reason,
            }
        )
    return rows


def write_table(
    entry: Entry,
    scale: str,
    rows: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
    folder: Path,
) -> Path:
    """Write ENTRY.json, ENTRY.csv and ENTRY.md.

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
    about = {
        "name": entry.name,
        "place": entry.place,
        "title": entry.title,
        "scale": scale,
        "open_choices": dict(entry.open),
        **facts,
    }
    text = json.dumps({**about, "rows": list(rows)}, indent=1) + "\n"
    # Each choice that the paper leaves open is a column, so that tables of several choices stack.
    chosen = {f"open: {name}": value for name, value in entry.open.items()}
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*HEADS, "scale", *chosen], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "scale": scale, **chosen} for row in rows)
    path = folder / f"{entry.name}.md"
    write(
        {
            folder / f"{entry.name}.csv": stream.getvalue(),
            folder / f"{entry.name}.json": text,
            path: markdown(entry, scale, rows, facts),
        }
    )
    return path


def markdown(
    entry: Entry, scale: str, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]
) -> str:
    """The table as Markdown: a line a row of the paper, a column a column of it.

    Args:
        entry: what the table is of.
        scale: at which it was made.
        rows: as `table_rows` returns them.
        facts: as of `write_table`.

    Returns:
        The text.
    """
    lines = [
        f"# {entry.title}",
        "",
        f"{entry.place}. Scale: {scale}. Command: `{facts['command']}`",
    ]
    if scale == "smoke":
        lines += [
            "",
            "Smoke: a test of the path on tiny made-up images. These numbers mean nothing.",
        ]
    columns = list(dict.fromkeys(row["column"] for row in rows))
    for level in dict.fromkeys(row["level"] for row in rows):
        lines += ["", f"## Level of leak: {level}"] if level else []
        lines += ["", "| |" + "".join(f" {c} | theirs |" for c in columns)]
        lines += ["|---|" + "---|---|" * len(columns)]
        for label in dict.fromkeys(row["row"] for row in rows):
            here = {
                row["column"]: row for row in rows if (row["level"], row["row"]) == (level, label)
            }
            cells = [f" {_ours(here[c])} | {_theirs(here[c])} |" for c in columns]
            lines.append(f"| {label} |" + "".join(cells))
    finished = [row for row in rows if row["state"] == FINISHED]
    if finished:
        sizes = {(r["n_members"], r["n_nonmembers"]) for r in finished if r["n_nonmembers"]}
        scored = ", ".join(f"{a} + {b}" for a, b in sorted(sizes))
        counts = sorted({row["targets"] for row in finished})
        lines += ["", f"Targets a cell: {', '.join(map(str, counts))}."]
        lines += [f"Images scored (members + non-members): {scored}."] if scored else []
        lines += [
            "Brackets: 95 % interval, over targets where there are several, else over images."
        ]
    reasons = {row["reason"] for row in rows if row["state"] != FINISHED and row["reason"]}
    lines += ["", *(f"- Not run, or failed: {reason}" for reason in sorted(reasons))]
    lines += ["", "Choices that the paper leaves open:", ""] if entry.open else []
    lines += [f"- {name}: {value}" for name, value in entry.open.items()]
    hardware = facts["hardware"]
    lines += ["", f"Made on {hardware['cpu']}, {hardware['cores']} cores; "
              f"torch {facts['versions']['torch']}."]  # fmt: skip
    return "\n".join(lines) + "\n"


def claims_text(claims: Sequence[ClaimResult]) -> str:
    """The claims as Markdown, a table a paper.

    Args:
        claims: as `judge_claims` returns them.

    Returns:
        The text.
    """
    lines = ["# What the papers claim, and what holds here"]
    lines += [
        "",
        "A difference over targets: its mean and 95 % interval. The interval of the primary claim "
        "stands alone; those of a paper's other claims are simultaneous.",
    ]
    for paper in dict.fromkeys(claim.paper for claim in claims):
        heads = "| claim | entry | level | verdict | difference | p | n |"
        lines += ["", f"## {paper}", "", heads, "|---|---|---|---|---|---|---|"]
        for claim in (c for c in claims if c.paper == paper):
            number = "" if claim.mean is None else f"{claim.mean:+.3f}"
            if claim.low is not None and claim.high is not None:
                number += f" [{claim.low:+.3f}, {claim.high:+.3f}]"
            says = f"**Primary.** {claim.says}" if claim.primary else claim.says
            p = "" if claim.p is None else f"{claim.p:.3g}"
            lines.append(
                f"| {says} | {claim.entry} | {claim.level} | {claim.verdict} | {number} | {p} | "
                f"{claim.targets} |"
            )
    return "\n".join(lines) + "\n"


def write_claims(claims: Sequence[ClaimResult], folder: Path) -> None:
    """Write claims.json and claims.md.

    Args:
        claims: as `judge_claims` returns them.
        folder: of the files.
    """
    text = json.dumps([asdict(claim) for claim in claims], indent=1) + "\n"
    write({folder / "claims.json": text, folder / "claims.md": claims_text(claims)})


def _ours(row: Mapping[str, Any]) -> str:
    if row["ours"] is None:
        return row["state"] if row["state"] != FINISHED else "-"
    ci = "" if row["low"] is None else f" [{row['low']:.3f}, {row['high']:.3f}]"
    return f"{row['ours']:.3f}{ci}"


def _theirs(row: Mapping[str, Any]) -> str:
    if row["theirs"] is None:
        return ""
    sd = "" if row["theirs_sd"] is None else f" ± {row['theirs_sd']:g}"
    return f"{row['theirs']:g}{sd}"
