"""The command: make the jobs of the tables that are asked for, then write the tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event

from fedmia.cli.command import Invocation
from fedmia.runtime.device import resolve_device
from fedmia.settings.errors import InputError, opt
from fedmia.storage.durable import write
from fedmia.study.scheduler import exit_code, going_on, run_jobs, side_by_side
from research.papers.drawing import draw, mark
from research.papers.entries import Entry, TableCell, jobs_of, select
from research.papers.jobs import HEAD, JobFolder
from research.papers.listing import SMOKE
from research.papers.settings import Reproduce
from research.papers.tables import claims_of, table_of, write_claims, write_seconds, write_table


def reproduce(invocation: Invocation, stop: Event) -> int:
    """Run `python -m research.papers TABLE`.

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
    by_entry = [
        (e.shown_at(config.scale), e.cells(config.scale, data_dir, config.targets)) for e in entries
    ]
    jobs = list(jobs_of([cell for _, cells in by_entry for cell in cells]))
    device = resolve_device(config.device)
    at_once = side_by_side(config.jobs, [device], threads=1)
    folder = JobFolder(invocation.out.resolve(), data_dir, device)
    quiet = invocation.quiet or invocation.json
    with going_on(stop), folder.locked():
        failed = run_jobs(folder.unfinished(jobs), at_once, stop, quiet, config.minutes)
        paths = write_all(by_entry, config, folder, failed)
    if not invocation.quiet:
        for path in paths:
            print(path.read_text(encoding="utf-8"))
    for key, reason in failed.items():
        print(f"fedmia: {key} failed: {reason}", file=sys.stderr)
    return exit_code(stop, failed)


def write_all(
    by_entry: Sequence[tuple[Entry, Sequence[TableCell]]],
    config: Reproduce,
    folder: JobFolder,
    failed: Mapping[str, str],
) -> list[Path]:
    """Write every table, its figures and, of real images, the claims.

    Args:
        by_entry: the entries with their cells.
        config: the settings of the command.
        folder: of the jobs.
        failed: key of each job that failed -> why.

    Returns:
        The Markdown files.
    """
    pages, tables, paths = folder.root / "tables", [], []
    flags = {"data-dir": config.data_dir and "DATA", "targets": config.targets}
    more = "".join(f" --{name} {value}" for name, value in flags.items() if value is not None)
    for entry, cells in by_entry:
        command = f"python -m research.papers {entry.name} --scale {config.scale}{more}"
        table = table_of(entry, config.scale, command, cells, folder, failed)
        tables.append(table)
        paths.append(write_table(table, pages))
        pictures = drawn_by_paper(entry, cells, folder)
        drawn = entry.figure in ("lines", "bars", "plane")
        if drawn and (picture := draw(entry.title, table["cells"], entry.figure)) is not None:
            pictures[f"{entry.name}.png"] = picture
        for name, one in pictures.items():
            write({pages / name: mark(one) if config.scale == SMOKE else one})
    write_seconds(zip(tables, [c for _, c in by_entry], strict=True), config.scale, folder)
    if config.scale == SMOKE:  # nothing is claimed of made-up images
        return paths
    if claims := claims_of(tables):
        write_claims(claims, config.scale, folder.root)
        paths.append(folder.root / "claims.md")
    return paths


def drawn_by_paper(entry: Entry, cells: Sequence[TableCell], folder: JobFolder) -> dict[str, bytes]:
    """Read the figures that `papers run` or `papers head` drew, of the first target of each row.

    Args:
        entry: `figure` names their file, as `fig-5`.
        cells: of the entry.
        folder: of the jobs.

    Returns:
        File name -> PNG bytes.
    """
    pictures: dict[str, bytes] = {}
    for cell in cells if entry.figure.startswith("fig-") else ():
        for job in cell.jobs[:1]:
            place = "results/figures" if job.kind == HEAD else "results"
            drawn = folder.path(job) / place / f"{entry.figure}.png"
            # Rows of one run share its figure.
            if drawn.is_file() and (png := drawn.read_bytes()) not in pictures.values():
                name = "-".join(filter(None, [entry.name, cell.level, cell.row]))
                pictures[f"{name.replace(' ', '-')}.png"] = png
    return pictures
