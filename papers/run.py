"""The command: make the jobs of the tables that are asked for, then write the tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from fedmia.cli.command import FAILED, INTERRUPTED, Invocation
from fedmia.options.errors import InputError, opt
from fedmia.runtime.cores import count_cores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.environment import describe
from fedmia.storage.durable import explain, write
from papers.claims.over_targets import judge_claims
from papers.drawing import draw, mark
from papers.entries import Entry, TableCell, jobs_of, select
from papers.jobs import PAPER, JobFolder, run_jobs
from papers.settings import Reproduce
from papers.tables import readings_of, table_rows, write_claims, write_table


def reproduce(invocation: Invocation, stop: Event) -> int:
    """Run `python -m papers TABLE`.

    Args:
        stop: set when the user interrupts.

    Returns:
        The exit code: 0, 1 a job failed (the others are in the tables), 130 interrupted or out of
        time.

    Raises:
        InputError: an unknown table, no folder, or one of something else.
        DiskError: a file could not be written or read; what was begun can be gone on with.
    """
    config: Reproduce = invocation.settings
    if invocation.out is None:
        raise InputError(f"{opt('out', 'FOLDER')} is missing: the runs are kept there")
    data_dir = None if config.data_dir is None else Path(config.data_dir).resolve()
    if data_dir is not None and not data_dir.is_dir():
        raise InputError(f"{opt('data_dir', str(data_dir))}: no such folder")
    entries = select(config.tables)
    by_entry = [(e, e.cells(config.scale, data_dir, config.targets)) for e in entries]
    jobs = list(jobs_of([cell for _, cells in by_entry for cell in cells]))
    device = resolve_device(config.device)
    at_once = config.jobs or (1 if device != "cpu" else count_cores())
    folder = JobFolder(invocation.out.resolve(), data_dir, device)

    def say(line: str) -> None:
        if not invocation.quiet and not invocation.json:
            print(f"fedmia: {line}", file=sys.stderr, flush=True)

    with explain(hint="the same command goes on with what is not finished"), folder.locked():
        failed = run_jobs(jobs, folder, at_once, stop, config.minutes, say)
        paths = write_all(by_entry, config, folder, failed)
    if not invocation.quiet:
        for path in paths:
            print(path.read_text(encoding="utf-8"))
    if stop.is_set():
        print("fedmia: the same command goes on with what is not finished", file=sys.stderr)
    for key, reason in failed.items():
        print(f"fedmia: {key} failed: {reason}", file=sys.stderr)
    return INTERRUPTED if stop.is_set() else FAILED if failed else 0


def write_all(
    by_entry: Sequence[tuple[Entry, Sequence[TableCell]]],
    config: Reproduce,
    folder: JobFolder,
    failed: Mapping[str, str],
) -> list[Path]:
    """Write every table, its figures, and the claims.

    Args:
        by_entry: the entries with their cells.
        config: the settings of the command.
        folder: of the jobs.
        failed: key of each job that failed -> why.

    Returns:
        The Markdown files.
    """
    tables = folder.root / "tables"
    numbered, paths, made_on = [], [], describe()
    for entry, cells in by_entry:
        readings = readings_of(cells, folder)
        rows = table_rows(cells, readings, folder, failed)
        command = f"python -m papers {entry.name} --scale {config.scale}"
        if config.targets is not None:
            command += f" --targets {config.targets}"
        facts: dict[str, Any] = {"command": command, **made_on}
        paths.append(write_table(entry, config.scale, rows, facts, tables))
        pictures = drawn_by_paper(entry, cells, folder)
        drawn = entry.figure in ("lines", "bars", "plane")
        if drawn and (picture := draw(entry.title, rows, entry.figure)) is not None:
            pictures[f"{entry.name}.png"] = picture
        for name, one in pictures.items():
            write({tables / name: mark(one) if config.scale == "smoke" else one})
        numbered.append((entry, cells, readings))
    claims = judge_claims(numbered)
    if claims:
        write_claims(claims, config.scale, folder.root)
        paths.append(folder.root / "claims.md")
    return paths


def drawn_by_paper(entry: Entry, cells: Sequence[TableCell], folder: JobFolder) -> dict[str, bytes]:
    """Read the figures that `papers run` drew of a run, of the first target of each row.

    Args:
        entry: `figure` names the file of `papers run`, as `fig-5`.
        cells: of the entry.
        folder: of the jobs.

    Returns:
        File name -> PNG bytes.
    """
    pictures = {}
    for cell in cells if entry.figure.startswith("fig-") else ():
        for job in cell.jobs[:1]:
            drawn = folder.path(job) / "results" / f"{entry.figure}.png"
            if job.kind == PAPER and drawn.is_file():
                place = "-".join(filter(None, [entry.name, cell.level, cell.row]))
                pictures[f"{place.replace(' ', '-')}.png"] = drawn.read_bytes()
    return pictures
