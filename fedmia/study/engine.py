"""The runs of a study, done side by side in its folder."""

from __future__ import annotations

from threading import Event

from fedmia.cli.command import FAILED
from fedmia.config.study import Cell, Study
from fedmia.runtime.cores import count_cores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.progress import StudyDisplay
from fedmia.study.folder import StudyFolder
from fedmia.study.launch import Start
from fedmia.study.processes import StudyProcess, explain_exit, run_all


def side_by_side(settings: Study) -> int:
    """How many runs are done at once."""
    if settings.jobs is not None:
        return settings.jobs
    cells = settings.points
    if any(resolve_device(cell.first.device) != "cpu" for cell in cells):
        return 1
    return max(1, count_cores() // max(cell.threads or count_cores() for cell in cells))


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
    finished = folder.finished()
    waiting = {folder.names[c.key]: c for c in folder.runs if c.key not in finished}

    def ended(task: StudyProcess, code: int) -> str | None:
        cell = waiting[task.name]
        hidden = {f" in {folder.config(cell)}": "", str(folder.unfinished): "unfinished"}
        # A run of which an attack alone failed is whole but for it, and its report says so.
        reason = folder.keep(cell) if code in (0, FAILED) else ""
        if code and reason is not None:
            reason = explain_exit(code, task.log, hidden)
        if reason is not None:
            folder.give_up(cell)
        display.ended(task.name, reason)
        return reason

    def task(name: str, cell: Cell) -> StudyProcess:
        config, run_folder, log = folder.begin(cell)
        return StudyProcess(
            name, start(config, run_folder), log, cell.threads or max(1, count_cores() // jobs)
        )

    with StudyDisplay(len(waiting), quiet) as display:
        tasks = [task(name, cell) for name, cell in waiting.items()]
        failed = run_all(tasks, jobs, lambda task: display.began(task.name), ended, stop)
    return {waiting[name].key: reason for name, reason in failed.items()}
