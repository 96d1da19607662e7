"""The runs of a study, done side by side in its folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

from fedmia.cli.command import FAILED, INTERRUPTED, Invocation
from fedmia.config.sweep import Cell, RunBatch, label
from fedmia.options.errors import InputError, opt
from fedmia.options.yamlfile import Tree
from fedmia.records.rows import Report
from fedmia.runtime.cores import count_cores
from fedmia.runtime.device import resolve_device
from fedmia.runtime.progress import SweepDisplay
from fedmia.storage.durable import explain
from fedmia.study.folder import StudyFolder, names
from fedmia.study.processes import StudyProcess, explain_exit, run_all
from fedmia.table import Row, load_rows

# Command line of the process that makes a run: of the file of its settings, and its folder.
Start = Callable[[Path, Path], Sequence[str]]


@dataclass(frozen=True)
class RunLauncher:
    """How the runs are made.

    Attributes:
        start: makes the command line of the process of a run.
        is_resumable: whether a folder holds a run that can be continued.
    """

    start: Start
    is_resumable: Callable[[Path], bool]


@dataclass(frozen=True)
class Study:
    """Runs as far as they could be done, and what was asked: all that a view reads.

    Attributes:
        settings: of the command.
        cells: the runs, all points at the first seed before those at the second.
        finished: key of each finished run -> its folder under `out`, and its report.
        failed: key -> why.
        seconds: that this call took.
        out: folder of the study.
        code: exit code.
    """

    settings: Any
    cells: Sequence[Cell[Any]]
    finished: Mapping[str, tuple[str, Report]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    out: Path = Path()
    code: int = 0

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Key of each run -> its name."""
        return names(self.cells)

    @cached_property
    def table(self) -> list[Row]:
        """The rows of every finished run's table, with the run, its seed and its point."""
        rows: list[Row] = []
        for cell in self.by_point():
            if cell.key in self.finished:
                place = {"run": self.names[cell.key], "seed": cell.seed, "point": label(cell.grid)}
                rows += [{**row, **place} for row in self._rows(cell.key)]  # type: ignore[typeddict-item]
        return rows

    def _rows(self, key: str) -> list[Row]:
        folder, report = self.finished[key]
        return load_rows(self.out / folder, lambda: report)

    def reports(self) -> dict[str, Report]:
        """Key of each finished run -> its report."""
        return {key: report for key, (_, report) in self.finished.items()}

    def by_point(self) -> list[Cell[Any]]:
        """Its runs, those of one point together."""
        count = sum(cell.nth == 0 for cell in self.cells)
        return [cell for i in range(count) for cell in self.cells[i::count]]

    def state(self, cell: Cell[Any], **place: Any) -> dict[str, Any]:
        """What every file says of a run (`RunState`), its `place` in the study after its name.

        Args:
            cell: the run.
            place: keys that a file adds after its name.

        Returns:
            The fields of `RunState`.
        """
        path, report = self.finished.get(cell.key, (None, None))
        lost = "failed" if cell.key in self.failed else "not run"
        return {
            "name": self.names[cell.key] if path is None else Path(path).name,
            **place,
            "seed": cell.seed,
            "state": lost if report is None else "finished",
            "reason": self.failed.get(cell.key),
            "path": path,
        }

    def counts(self) -> dict[str, Any]:
        """The seeds, and how many runs are in which state, as `StudyReport` has them."""
        states = [self.state(cell)["state"] for cell in self.cells]
        counts = {name.replace(" ", "_"): states.count(name) for name in STATES}
        return {"seeds": sorted({cell.seed for cell in self.cells}), **counts}

    def timing(self, runs: str = "runs") -> dict[str, Any]:
        """Seconds of the study, and of each of its runs by name."""
        took = {self.names[key]: r["timing"].get("total_s") for key, r in self.reports().items()}
        return {"total_s": round(self.seconds, 3), runs: took}


STATES = ("finished", "failed", "not run")


@contextmanager
def run_cells(
    runs: RunBatch, tree: Tree, invocation: Invocation, stop: Event, work: RunLauncher
) -> Iterator[Study]:
    """Do the runs that are not finished yet; their folder is held while the context is open.

    Args:
        runs: all runs of the study.
        tree: the settings as the file of the command has them.
        stop: set when the user interrupts.
        work: how runs are made.

    Yields:
        The study, with all runs that are finished.

    Raises:
        InputError: no folder, or one of something else.
        DiskError: a file could not be written or read; finished runs stay, and begun ones.
    """
    if invocation.out is None:
        raise InputError(f"{opt('out', 'FOLDER')} is missing: the runs are kept there")
    began, quiet = time.perf_counter(), invocation.quiet or invocation.json
    folder = StudyFolder(invocation.out, runs, tree, work.is_resumable)
    hint = "the same command again goes on with this study"
    with explain(hint=hint), folder.locked():
        failed = _run(folder, runs, stop, quiet, work.start)
        finished = {
            key: (run_folder.relative_to(folder.out).as_posix(), report)
            for key, (run_folder, report) in folder.finished().items()
        }
        seconds = time.perf_counter() - began
        code = INTERRUPTED if stop.is_set() else FAILED if failed else 0
        if stop.is_set():
            print(f"fedmia: {hint}", file=sys.stderr)
        yield Study(invocation.settings, runs.cells, finished, failed, seconds, folder.out, code)


def side_by_side(runs: RunBatch) -> int:
    """How many runs are done at once."""
    if runs.jobs is not None:
        return runs.jobs
    if any(resolve_device(cell.first.device) != "cpu" for cell in runs.cells):
        return 1
    return max(1, count_cores() // max(cell.threads or count_cores() for cell in runs.cells))


def _run(
    folder: StudyFolder, runs: RunBatch, stop: Event, quiet: bool, start: Start
) -> dict[str, str]:
    """Do what is not finished; the reason of each run that failed, by the key of its settings."""
    finished = folder.finished()
    waiting = {folder.names[c.key]: c for c in runs.cells if c.key not in finished}
    jobs = side_by_side(runs)

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

    def task(name: str, cell: Cell[Any]) -> StudyProcess:
        config, run_folder, log = folder.begin(cell)
        return StudyProcess(
            name, start(config, run_folder), log, cell.threads or max(1, count_cores() // jobs)
        )

    with SweepDisplay(len(waiting), quiet) as display:
        tasks = [task(name, cell) for name, cell in waiting.items()]
        failed = run_all(tasks, jobs, lambda task: display.began(task.name), ended, stop)
    return {waiting[name].key: reason for name, reason in failed.items()}
