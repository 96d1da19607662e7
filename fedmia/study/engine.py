"""The runs of a study: the command line of each, done side by side in the study's folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, cast

from fedmia.cli.command import FAILED
from fedmia.config.audit import Audit
from fedmia.config.study import Cell, Study
from fedmia.runtime.cores import count_cores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.progress import StudyDisplay
from fedmia.storage.runfolder import RunFolder
from fedmia.study.folder import StudyFolder
from fedmia.study.processes import StudyProcess, command, explain_exit, run_all

# Command line of the process that makes a run: of the file of its settings, and its folder.
Start = Callable[[Path, Path], Sequence[str]]


def side_by_side(settings: Study) -> int:
    """How many runs are done at once."""
    if settings.jobs is not None:
        return settings.jobs
    cells = settings.points
    if any(resolve_device(cell.first.device) != "cpu" for cell in cells):
        return 1
    return max(1, count_cores() // max(cell.threads or count_cores() for cell in cells))


def start_of(settings: Study) -> Start:
    """What makes the command line of each run of a study, begun or gone on with."""
    trust = ["--trust-plugins"] if settings.trust_plugins else []

    def audit(config: Path, folder: Path) -> Sequence[str]:
        return command("fedmia.audit", "--config", config, "--out", folder, *trust)

    def simulate(config: Path, folder: Path) -> Sequence[str]:
        if not RunFolder(folder).can_go_on():
            return command("fedmia.simulate", "--config", config, "--out", folder)
        # What lies there is of the study's own settings, whose plugins its user named.
        return command("fedmia.simulate", "--resume", folder, "--trust-plugins")

    return audit if settings.encoders else simulate


def make_runs(
    folder: StudyFolder, jobs: int, stop: Event, quiet: bool, start: Start
) -> dict[str, str]:
    """Do what is not finished in a locked folder.

    Args:
        folder: of the study.
        jobs: how many runs at once.
        stop: set when the user interrupts.
        quiet: show no progress.
        start: makes the command line of a run.

    Returns:
        Key of each run that failed -> why.

    Raises:
        DiskError: a file could not be written or read; finished runs stay, and begun ones.
    """
    finished, failed = folder.finished(), dict[str, str]()
    waiting = {folder.names[c.key]: c for c in folder.runs if c.key not in finished}

    def task(name: str, cell: Cell) -> StudyProcess:
        config, run_folder, log = folder.begin(cell)
        threads = cell.threads or max(1, count_cores() // jobs)
        return StudyProcess(name, start(config, run_folder), log, threads)

    with StudyDisplay(len(waiting), quiet) as display:
        tasks = [task(name, cell) for name, cell in waiting.items()]
        with closing(run_all(tasks, jobs, stop, display.began)) as ended:
            for name, code, log in ended:
                cell = waiting[name]
                # A run of which an attack alone failed is whole but for it, and its report says so.
                reason = folder.keep(cell) if code in (0, FAILED) else ""
                if code and reason is not None:
                    hidden = {
                        f" in {folder.config(cell)}": "",
                        str(folder.unfinished): "unfinished",
                    }
                    reason = explain_exit(code, log, hidden)
                if reason is not None:
                    folder.give_up(cell)
                    failed[cell.key] = reason
                display.ended(name, reason)
    return failed


def add_digests(cells: Sequence[Cell]) -> list[Cell]:
    """The audits with the digests of their encoders and images, all of which are loaded once.

    Raises:
        InputError: an audit that would be refused.
    """
    from fedmia.evaluation.audits.images import AuditSplit
    from fedmia.evaluation.audits.resume import audit_digest
    from fedmia.evaluation.audits.runs import run_of
    from fedmia.evaluation.encoder import check_embeddings, device_of, images_for, load_encoder

    splits, digests = dict[Any, AuditSplit](), list[str]()
    for audit in [cast(Audit, cell.first) for cell in cells if cell.nth == 0]:
        released = load_encoder(audit, device_of(audit))
        run = run_of(audit)
        source = None if run is None else run.path, audit.size or released.size, audit.of_rounds
        if source not in splits:
            splits[source] = images_for(audit, released)
        check_embeddings(released, splits[source], audit.allow_random)
        digests.append(audit_digest(audit, released, splits[source]))
    every = itertools.cycle(digests)  # all encoders at the first seed, then all at the second
    return [replace(cell, files=files) for cell, files in zip(cells, every, strict=False)]
