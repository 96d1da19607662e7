"""The table of an entry: ours beside theirs, as JSON, and CSV and Markdown made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmia.report import csvs
from fedmia.report.page import templates
from fedmia.report.words.numbers import estimate
from fedmia.settings.yamlfile import dump
from fedmia.storage.durable import make_folder, write
from fedmia.storage.json_rows import to_json
from research.papers.cells import Reading, Row, Rows, read_cell
from research.papers.claims.over_targets import Readings, judge_claims
from research.papers.entries import Entry, TableCell
from research.papers.jobs import JobFolder, TableJob
from research.papers.listing import SMOKE, TEMPLATES

FINISHED, FAILED, WAITING, NOT_RUN = "finished", "failed", "not finished", "not run"
OF_ENTRY = ("name", "paper", "place", "title", "open", "claims")
THEIRS = ("theirs", "theirs_sd")  # not of a table of made-up images
OF_CELL = ("level", "row", "column", "read", *THEIRS)
OF_READING = ("low", "high", "interval", "n_members", "n_nonmembers", "by_seed")
HEADS = (*OF_CELL, "ours", *OF_READING, "seconds", "state", "reason", "no_answer")


def finished_jobs(cells: Iterable[TableCell], folder: JobFolder) -> list[dict[str, Any]]:
    """Seconds, hardware and versions of the finished jobs behind some cells, each job once."""
    chain = {one.key: one for cell in cells for job in cell.jobs for one in job.chain()}
    return [facts for one in chain.values() if (facts := folder.done(one)) is not None]


def table_of(
    entry: Entry, scale: str, command: str, cells: Sequence[TableCell], folder: JobFolder,
    failed: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """All that is known of an entry, in the types of JSON.

    Args:
        entry: what the table is of.
        scale: at which it was made.
        command: that makes it.
        cells: of the entry.
        folder: of the jobs.
        failed: key of each job that failed -> why.

    Returns:
        `OF_ENTRY`, `scale`, `command`; `made_on`, each commit, hardware and versions that jobs ran
        on; the `seconds` of all jobs; and `cells` as `table_rows` returns them, at `smoke` without
        `THEIRS`.
    """
    cut = THEIRS if scale == SMOKE else ()
    rows = [
        {name: value for name, value in row.items() if name not in cut}
        for row in table_rows(cells, folder, failed)
    ]
    done = finished_jobs(cells, folder)
    places = [{n: facts[n] for n in ("commit", "hardware", "versions")} for facts in done]
    return to_json(
        {name: getattr(entry, name) for name in OF_ENTRY}
        | {"scale": scale, "command": command}
        | {"made_on": [one for i, one in enumerate(places) if one not in places[:i]]}
        | {"seconds": round(sum(facts["seconds"] for facts in done), 1)}
        | {"cells": rows},
        exact=True,
    )


def table_rows(
    cells: Sequence[TableCell], folder: JobFolder, failed: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A row a cell, with the number that its finished jobs give.

    Args:
        cells: of an entry.
        folder: of the jobs.
        failed: key of each job that failed -> why.

    Returns:
        The rows: `OF_CELL`, `ours`, `OF_READING`, `seconds` of all its jobs, those that other cells
        share among them, `state`, `reason`, the keys of its last `jobs`, one a target, and, where
        there are any, the seeds of targets with `no_answer`: one score for nearly all images.
    """
    rows = []
    for cell in cells:
        reading = (read_cell(cell, folder) if cell.jobs else None) or Reading(None)
        seconds = sum(facts["seconds"] for facts in finished_jobs([cell], folder))
        keys = [one.key for job in cell.jobs for one in job.chain()]
        reason = next((failed[key] for key in keys if key in failed), cell.reason)
        state = NOT_RUN if not cell.jobs else FAILED if reason else FINISHED
        if state == FINISHED and not all(folder.done(job) for job in cell.jobs):
            state = WAITING
        if state == FINISHED and reading.value is None:
            reason = "its job has no such number: too few images, or the attack could not run"
        of = {"no_answer": [*reading.no_answer]} if reading.no_answer else {}
        rows.append(
            {name: getattr(cell, name) for name in OF_CELL}
            | {"ours": reading.value}
            | {name: getattr(reading, name) for name in OF_READING}
            | {"seconds": round(seconds, 1), "state": state, "reason": reason}
            | {"jobs": [job.key for job in cell.jobs]}
            | of
        )
    return rows


def read_back(table: Row) -> tuple[Entry, list[TableCell], Readings]:
    """What claims are judged by, of a table as its JSON file holds it.

    Args:
        table: as `table_of` returns it.

    Returns:
        The entry, its cells, whose jobs have keys alone, and their numbers.
    """
    cells, readings = [], {}
    for row in table["cells"]:
        jobs = tuple(TableJob(key, {}) for key in row["jobs"])
        cells.append(TableCell(**{name: row[name] for name in OF_CELL}, jobs=jobs))
        by_seed = {int(seed): value for seed, value in row["by_seed"].items()}
        readings[row["level"], row["row"], row["column"]] = Reading(
            row["ours"], by_seed=by_seed, no_answer=row.get("no_answer", ())
        )
    return Entry(**{name: table[name] for name in OF_ENTRY}), cells, readings


def claims_of(tables: Iterable[Row]) -> list[dict[str, Any]]:
    """Judge the claims of tables by what their JSON files hold, and by nothing else.

    Args:
        tables: as `table_of` returns them, all that are judged together.

    Returns:
        The claims as of `judge_claims`.
    """
    return judge_claims([read_back(table) for table in tables])


def write_table(table: Row, folder: Path) -> Path:
    """Write NAME.json, NAME.csv and NAME.md.

    Args:
        table: as `table_of` returns it.
        folder: of the files; made where it is missing.

    Returns:
        The path of the Markdown file.
    """
    make_folder(folder, folder.parent)
    # Each choice that the paper leaves open is a column, so that tables of several choices stack.
    chosen = {f"open: {name}": value for name, value in table["open"].items()}
    flat = [_flat(row) for row in table["cells"]]
    heads = [head for head in HEADS if any(head in row for row in flat)]
    lines = [[*map(row.get, heads), table["scale"], *chosen.values()] for row in flat]
    path = folder / f"{table['name']}.md"
    texts = {".json": as_json(table), ".md": markdown(table)}
    texts[".csv"] = csvs.text([*heads, "scale", *chosen], lines)
    write({path.with_suffix(suffix): text for suffix, text in texts.items()})
    return path


def write_seconds(tables: Iterable[tuple[Row, Any]], scale: str, folder: JobFolder) -> None:
    """Write seconds.yaml, a part of the package's file of this name, which `--list` reads.

    Args:
        tables: as `table_of` returns them, with their cells; those that are not finished are left
            out.
        scale: at which they were made.
        folder: of the jobs, and of the file.
    """
    unfinished = {FAILED, WAITING}
    whole = [(t, cells) for t, cells in tables if not {c["state"] for c in t["cells"]} & unfinished]
    done = finished_jobs([cell for _, cells in whole for cell in cells], folder)
    if done:
        at = "{cpu}, {cores} cores".format(**done[0]["hardware"])
        times = {"made_on": at, "all": round(sum(one["seconds"] for one in done))}
        times["tables"] = {t["name"]: round(t["seconds"]) for t, _ in whole if t["seconds"]}
        write({folder.root / "seconds.yaml": dump({scale: times})})


def as_json(content: Row) -> str:
    """The text of a JSON file."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def markdown(table: Row) -> str:
    """The table as Markdown: a line a row of the paper, a column a column of it.

    Args:
        table: as `table_of` returns it.

    Returns:
        The text.
    """
    by_level: dict[str, dict[str, dict[str, str]]] = {}
    for row in table["cells"]:
        lines = by_level.setdefault(row["level"], {})
        theirs = "" if table["scale"] == SMOKE else f" {_theirs(row)} |"
        lines.setdefault(row["row"], {})[row["column"]] = f"{_ours(row)} |{theirs}"
    finished = [row for row in table["cells"] if row["state"] == FINISHED]
    return _render(
        "reproduced_table",
        table=table,
        by_level=by_level,
        targets=sorted({(len(r["by_seed"]), ", ".join(r["by_seed"])) for r in finished}),
        intervals=sorted({row["interval"] for row in finished} - {""}, reverse=True),
        scored=sorted({(r["n_members"], r["n_nonmembers"]) for r in finished if r["n_nonmembers"]}),
        reasons=sorted({r["reason"] for r in table["cells"] if r["state"] != FINISHED} - {""}),
        marked=[row for row in finished if "no_answer" in row],
    )


def write_claims(claims: Rows, scale: str, folder: Path) -> None:
    """Write claims.json, claims.csv and claims.md, which has a table a paper.

    Args:
        claims: as `judge_claims` returns them.
        scale: at which they were judged.
        folder: of the files.
    """
    flat = [_flat(claim) for claim in claims]
    heads = dict.fromkeys(name for claim in flat for name in claim)
    text = csvs.text([*heads], [[claim.get(name) for name in heads] for claim in flat])
    page = _render("reproduced_claims", claims=claims)
    content = to_json({"scale": scale, "claims": claims}, exact=True)
    texts = {".json": as_json(content), ".csv": text, ".md": page}
    write({folder / f"claims{suffix}": one for suffix, one in texts.items()})


def _flat(row: Row) -> Row:
    """A line of a CSV file: lists and mappings as JSON."""
    return {n: json.dumps(v) if isinstance(v, list | dict) else v for n, v in row.items()}


def _render(template: str, **content: Any) -> str:
    markdown_pages = templates(TEMPLATES).overlay(autoescape=False)
    return markdown_pages.get_template(f"{template}.md.j2").render(content)


def _ours(row: Row) -> str:
    if row["ours"] is None:
        return row["state"] if row["state"] != FINISHED else "-"
    ci = None if row["low"] is None else (row["low"], row["high"])
    return estimate(row["ours"], ci, 3) + " =" * ("no_answer" in row)


def _theirs(row: Row) -> str:
    if row["theirs"] is None:
        return ""
    sd = "" if row["theirs_sd"] is None else f" ± {row['theirs_sd']:g}"
    return f"{row['theirs']:g}{sd}"
