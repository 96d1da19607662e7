"""A study from its settings to what each view makes of it."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

from fedmia.cli.command import Invocation
from fedmia.config.sweep import RunBatch
from fedmia.options.yamlfile import Tree
from fedmia.study.engine import RunLauncher, Study, run_cells
from fedmia.study.spreads import write
from fedmia.study.view import StudyPage


def run_study(
    invocation: Invocation,
    stop: Event,
    runs: RunBatch,
    tree: Tree,
    work: RunLauncher,
    *views: StudyPage,
) -> int:
    """Do the runs that are not finished yet, write what each view makes of all, and print the last
    view; the exit code.

    Args:
        stop: set when the user interrupts.
        runs: all runs of the study.
        tree: the settings as the file of the command has them.
        work: how runs are made.
        views: each writes its files; the last is printed.

    Returns:
        The exit code.

    Raises:
        InputError: no folder, or one of something else.
    """
    study, report, page = write_study(invocation, stop, runs, tree, work, *views)
    views[-1].show(report, invocation, page)
    return study.code


def write_study(
    invocation: Invocation,
    stop: Event,
    runs: RunBatch,
    tree: Tree,
    work: RunLauncher,
    *views: StudyPage,
) -> tuple[Study, Any, Path]:
    """Do the runs that are not finished yet, and write what each view makes of all.

    Args:
        invocation: as of `run_study`.
        stop: likewise.
        runs: likewise.
        tree: likewise.
        work: likewise.
        views: likewise.

    Returns:
        The study, the last view's report, and the path of its page.

    Raises:
        InputError: no folder, or one of something else.
    """
    with run_cells(runs, tree, invocation, stop, work) as study:
        for view in views:
            report = view.report(study)
            page = view.write(report, study.out)
        write(study.table, study.out)
    return study, report, page
