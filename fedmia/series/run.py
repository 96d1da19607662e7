"""A series of audits from its settings to `series.json` and its page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import torch

from fedmia.cli.command import Invocation
from fedmia.config.audit import Audit
from fedmia.config.series import Series
from fedmia.config.sweep import Cell, Runs
from fedmia.config.tree import to_tree
from fedmia.evaluation.audits.images import Dealt
from fedmia.evaluation.audits.resume import content
from fedmia.evaluation.audits.runs import run_folder
from fedmia.evaluation.encoder import brought, device_of, images_for, look
from fedmia.options.errors import InputError, opt
from fedmia.report.tell import failures, tell, write_files
from fedmia.runtime.cores import cores
from fedmia.series.compare import compare
from fedmia.series.page import page
from fedmia.series.tables import terminal
from fedmia.sweeping.runs import Start, Work, done


def auditing(config: Path, folder: Path) -> Sequence[str]:
    """A run of `python -m fedmia.audit` that ends when this process does."""
    return [sys.executable, "-m", "fedmia.series.cell", str(config), str(folder)]


def conduct(asked: Invocation, stop: Event, start: Start = auditing) -> int:
    """Do the audits that are not finished yet, compare all, write and print; the exit code.

    Args:
        start: makes the command line of an audit's process.

    Raises:
        InputError: an encoder or images that an audit refuses, before any is begun; no folder, or
            one of something else.
    """
    series: Series = asked.settings
    if asked.out is None:
        raise InputError(f"{opt('out', 'FOLDER')} is missing: the audits are kept there")
    torch.set_num_threads(series.threads or cores())
    cells = looked_at(series.cells)
    work = Work(start, lambda folder: True)  # an audit goes on with whatever lies there
    with done(Runs(cells, series.jobs), to_tree(series), asked, stop, work) as audits:
        from fedmia.series.figures import draw  # matplotlib takes its time

        report = compare(series, cells, audits)
        figure = draw(report)
        file = write_files(audits.out / "series", report, page(report, figure), figure)
    more = failures(report["cells"])
    tell(report, lambda: terminal(report), file, json=asked.json, quiet=asked.quiet, more=more)
    return audits.code


def looked_at(cells: Sequence[Cell[Audit]]) -> list[Cell[Audit]]:
    """The audits with the digests of their encoders and images, all of which are loaded once.

    Raises:
        InputError: an audit that would be refused.
    """
    held: dict[tuple[Path | None, int | None], Dealt] = {}
    found: dict[str, str] = {}
    for audit in [cell.first for cell in cells if cell.nth == 0]:
        released = brought(audit, device_of(audit))
        source = run_folder(audit.encoder), audit.size or released.size
        if source not in held:
            held[source] = images_for(audit, released)
        look(released, held[source], audit.allow_random)
        found[audit.encoder] = content(audit, released, held[source])
    return [replace(cell, files=found[cell.first.encoder]) for cell in cells]
