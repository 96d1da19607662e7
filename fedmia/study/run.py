"""A study from its settings to what each view makes of it."""

from __future__ import annotations

from threading import Event

from fedmia.cli.command import Invocation
from fedmia.config.sweep import RunBatch
from fedmia.options.yamlfile import Tree
from fedmia.study.engine import RunLauncher, run_cells
from fedmia.study.spreads import write
from fedmia.study.view import StudyPage


def run_study(
    asked: Invocation, stop: Event, runs: RunBatch, tree: Tree, work: RunLauncher, *views: StudyPage
) -> int:
    """Do the runs that are not finished yet, write what each view makes of all, and print the last
    view; the exit code.

    Args:
        tree: the settings as the file of the command says them.

    Raises:
        InputError: no folder, or one of something else.
    """
    with run_cells(runs, tree, asked, stop, work) as study:
        for view in views:
            report = view.report(study)
            page = view.write(report, study.out)
        write(study.table, study.out)
    view.show(report, asked, page)
    return study.code
