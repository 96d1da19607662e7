"""A sweep from its settings to `sweep.json` and `sweep.html`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from fedmia.cli.command import Invocation
from fedmia.config.sweep import Sweep
from fedmia.options.yamlfile import Tree
from fedmia.report.rows import Report
from fedmia.report.tell import failures, tell, write_files
from fedmia.simulate import begun
from fedmia.sweeping import runs
from fedmia.sweeping.compare import compare
from fedmia.sweeping.page import page
from fedmia.sweeping.rows import SweepReport
from fedmia.sweeping.runs import Start, Work
from fedmia.sweeping.tables import terminal


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
    report, file = swept.report, swept.out / "sweep.html"
    more = failures(report["cells"])
    tell(report, lambda: terminal(report), file, json=asked.json, quiet=asked.quiet, more=more)
    return swept.code


def done(sweep: Sweep, tree: Tree, asked: Invocation, stop: Event, start: Start) -> Swept:
    """Do the runs of a sweep that are not finished yet, compare all and write `sweep.json` and its
    page.

    Args:
        tree: the settings as the file of the command says them.

    Raises:
        InputError: no folder, or one of something else.
    """
    with runs.done(sweep.runs, tree, asked, stop, Work(start, begun)) as ran:
        from fedmia.sweeping.figures import draw  # matplotlib takes its time

        report = compare(sweep, ran.names, ran.finished, ran.failed, ran.seconds)
        write_files(ran.out / "sweep", report, page(report, draw(report), ran.out))
    return Swept(report, ran.finished, ran.out, ran.code)
