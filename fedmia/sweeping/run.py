"""A sweep from its settings to `sweep.json` and `sweep.html`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from rich.console import Console

from fedmia.errors import InputError, opt
from fedmia.report.publish import json_text
from fedmia.report.rows import Report
from fedmia.report.tell import tell
from fedmia.runtime.cores import cores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.progress import SweepDisplay
from fedmia.settings.command import FAILED, INTERRUPTED, Invocation
from fedmia.settings.sweep import Cell, Sweep
from fedmia.settings.yamlfile import Tree
from fedmia.sweeping.compare import compare
from fedmia.sweeping.folder import SweepFolder
from fedmia.sweeping.page import page
from fedmia.sweeping.processes import Task, run_all, said_of
from fedmia.sweeping.rows import SweepReport
from fedmia.sweeping.tables import terminal

# Command line of the process that makes a run: of the file of its settings, and its folder.
Start = Callable[[Path, Path], Sequence[str]]


def simulation(config: Path, folder: Path) -> Sequence[str]:
    """A run of `python -m fedmia.simulate` that ends when this process does."""
    return [sys.executable, "-m", "fedmia.sweeping.cell", str(config), str(folder)]


@dataclass(frozen=True)
class Swept:
    """A sweep whose runs are done, as far as they could be.

    Attributes:
        finished: key of each finished run -> its folder under that of the sweep, and its report.
        code: exit code.
    """

    report: SweepReport
    finished: Mapping[str, tuple[str, Report]]
    out: Path
    code: int


def conduct(asked: Invocation, stop: Event, start: Start = simulation) -> int:
    """Do the runs that are not finished yet, compare all, write and print; the exit code.

    Args:
        start: makes the command line of a run's process.

    Raises:
        InputError: no folder, or one of something else.
    """
    sweep: Sweep = asked.settings
    swept = done(sweep, sweep.tree(), asked, stop, start)
    _show(swept.report, swept.out, asked)
    return swept.code


def done(sweep: Sweep, tree: Tree, asked: Invocation, stop: Event, start: Start) -> Swept:
    """Do the runs of a sweep that are not finished yet, compare all and write `sweep.json` and its
    page.

    Args:
        tree: the settings as the file of the command says them.

    Raises:
        InputError: no folder, or one of something else.
    """
    if asked.out is None:
        raise InputError(f"{opt('out', 'FOLDER')} is missing: the runs are kept there")
    began, quiet = time.perf_counter(), asked.quiet or asked.json
    folder = SweepFolder(asked.out, sweep, tree)
    with folder.held():
        failed = _run(folder, sweep, stop, quiet, start)
        finished = {
            key: (made.relative_to(folder.out).as_posix(), report)
            for key, (made, report) in folder.finished().items()
        }
        seconds = time.perf_counter() - began
        report = compare(sweep, folder.names, finished, failed, seconds)
        _write(report, folder.out)
    code = INTERRUPTED if stop.is_set() else FAILED if failed else 0
    return Swept(report, finished, folder.out, code)


def side_by_side(sweep: Sweep) -> int:
    """How many runs are done at once."""
    if sweep.jobs is not None:
        return sweep.jobs
    runs = [cell.first for cell in sweep.cells]
    if any(resolve_device(run.device) != "cpu" for run in runs):
        return 1
    return max(1, cores() // max(run.threads_per_client for run in runs))


def _run(
    folder: SweepFolder, sweep: Sweep, stop: Event, quiet: bool, start: Start
) -> dict[str, str]:
    """Do what is not finished; the reason of each run that failed, by the key of its settings."""
    done = folder.finished()
    waiting = {folder.names[c.key]: c for c in sweep.cells if c.key not in done}
    failed: dict[str, str] = {}

    def ended(task: Task, code: int) -> None:
        cell = waiting[task.name]
        hidden = {f" in {task.arguments[-2]}": "", str(folder.unfinished): "unfinished"}
        # A run of which an attack alone failed is whole but for it, and its report says so.
        reason = folder.keep(cell) if code in (0, FAILED) else ""
        if code and reason is not None:
            reason = said_of(code, task.log, hidden)
        if reason is not None:
            failed[cell.key] = reason
            folder.give_up(cell)
        display.ended(task.name, reason)

    with SweepDisplay(len(waiting), quiet) as display:
        tasks = [_task(folder, name, cell, start) for name, cell in waiting.items()]
        run_all(tasks, side_by_side(sweep), lambda task: display.began(task.name), ended, stop)
    return failed


def _task(folder: SweepFolder, name: str, cell: Cell, start: Start) -> Task:
    config, made, log = folder.begin(cell)
    return Task(name, start(config, made), log, cell.first.threads_per_client)


def _write(report: SweepReport, out: Path) -> None:
    from fedmia.sweeping.figures import draw  # matplotlib takes its time

    (out / "sweep.json").write_text(json_text(report), encoding="utf-8")
    (out / "sweep.html").write_text(page(report, draw(report), out), encoding="utf-8")


def _show(report: SweepReport, out: Path, asked: Invocation) -> None:
    def failures(console: Console) -> None:
        for cell in report["cells"]:
            if cell["reason"]:
                line = f"{cell['name']} failed: {cell['reason']}"
                console.print(line, highlight=False, markup=False, soft_wrap=True)

    page = out / "sweep.html"
    tell(report, lambda: terminal(report), page, json=asked.json, quiet=asked.quiet, more=failures)
