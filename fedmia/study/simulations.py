"""Studies of simulations: a sweep, and the trade-off that is one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from fedmia.cli.command import Invocation
from fedmia.config.sweep import RunBatch, Sweep
from fedmia.config.tradeoff import Tradeoff
from fedmia.options import registry, session
from fedmia.options.errors import InputError, opt
from fedmia.options.yamlfile import Tree
from fedmia.storage.runfolder import RunFolder
from fedmia.study.child import command
from fedmia.study.engine import RunLauncher, Start
from fedmia.study.forecasts import study_forecasts
from fedmia.study.run import run_study
from fedmia.study.view import StudyPage, View
from fedmia.study.views.baseline import Baseline
from fedmia.study.views.sweep import SweepView
from fedmia.study.views.tradeoff import TradeoffView


def sweep(invocation: Invocation, stop: Event, start: Start | None = None) -> int:
    """`python -m fedmia.sweep`; `start` makes the command line of a run's process."""
    say_forecasts(invocation, invocation.settings)
    return run_study(invocation, stop, *sweep_parts(invocation.settings, start))


def sweep_parts(
    config: Sweep, start: Start | None = None
) -> tuple[RunBatch, Tree, RunLauncher, SweepView]:
    """What a sweep runs, how, and what shows it."""
    work = RunLauncher(start or simulate_command, is_resumable)
    return config.runs, config.tree(), work, SweepView(config, sections(config))


def sections(config: Sweep) -> dict[str, View]:
    """The views beside the sweep's own, by name.

    Raises:
        InputError: no such view, or one that is no section of a sweep's page.
    """
    views: dict[str, View] = {name: registry.build("view", name, {}) for name in config.views}
    for name, view in views.items():
        if isinstance(view, StudyPage | Baseline):
            raise InputError(f"{opt('views', name)}: it has a command or a flag of its own")
    if config.baseline is not None:
        views["baseline"] = Baseline(session.short_name(config.baseline))  # as reports call it
    return views


def tradeoff(invocation: Invocation, stop: Event, start: Start | None = None) -> int:
    """`python -m fedmia.tradeoff`: the sweep that it is, and what compares the defences.

    Args:
        stop: set when the user interrupts.
        start: makes the command line of a run's process; None for the usual one.

    Returns:
        The exit code.
    """
    config: Tradeoff = invocation.settings
    work = RunLauncher(start or simulate_command, is_resumable)
    views = SweepView(config.sweep), TradeoffView()
    say_forecasts(invocation, config.sweep)
    return run_study(invocation, stop, config.sweep.runs, config.tree(), work, *views)


def say_forecasts(invocation: Invocation, config: Sweep) -> None:
    """Print before the first run which defences will guarantee nothing worth the name.

    Args:
        invocation: of the command; quiet and JSON output print nothing.
        config: the sweep whose runs are to be done.
    """
    if invocation.quiet or invocation.json:
        return
    experiments = (cell.first for cell in config.cells)
    for line in study_forecasts(experiments):
        print(f"fedmia: {line}", file=sys.stderr)


def simulate_command(config: Path, folder: Path) -> Sequence[str]:
    """The command line of a run, begun or gone on with.

    Args:
        config: file of the run's settings.
        folder: of the run.

    Returns:
        The arguments.
    """
    if not is_resumable(folder):
        return command("fedmia.simulate", "--config", config, "--out", folder)
    # What lies there is of the study's own settings, whose plugins its user named.
    return command("fedmia.simulate", "--resume", folder, "--trust-plugins")


def is_resumable(folder: Path) -> bool:
    """Whether a folder holds a run that can be gone on with, or is finished."""
    run = RunFolder(folder)
    return run.begun() or run.finished() is not None
