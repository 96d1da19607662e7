"""`fedmia.run_simulation`: one federation under attack."""

from __future__ import annotations

import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import torch

from fedmia.cli.command import Invocation
from fedmia.cli.commands import SIMULATE
from fedmia.config.tree import flatten
from fedmia.door.arguments import Config, build_settings, options_tree
from fedmia.options.errors import InputError, format_value
from fedmia.options.values import plain
from fedmia.report.publish import say_not_run
from fedmia.runs import Run, open_run
from fedmia.runtime.interrupts import Interrupts
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.runfolder import RunFolder


@torch.inference_mode(False)  # with gradients, wherever it is called
def run_simulation(
    config: Config = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    quiet: bool = False,
    observe: Sequence[str] = (),
    trust_plugins: bool = False,
    **options: Any,
) -> Run:
    """Simulate federated self-supervised training, attack it, and report what leaks.

    The same as `fedmia simulate`: same options, same defaults, same numbers for the same seed.

        run = fedmia.run_simulation(clients=10, attacker="active", out="RUN")
        run.verdict
        run.attacks["auc"]

    The first Ctrl-C (in Jupyter: interrupt) ends the rounds and reports on the finished ones; the
    second ends at once.

    Args:
        config: preset, YAML file or nested mapping that the options are laid over; None: the
            defaults.
        out: folder of the results; None: a temporary one, which is removed with the `Run`.
        resume: folder of an interrupted run, to be continued with its own settings. Objects that
            it was started with are passed again, in the same options.
        quiet: show no progress.
        observe: observers of the run, such as `tensorboard`.
        trust_plugins: import plugins from outside that the folder of a run names.
        options: every flag of `fedmia simulate` with `_` for `-` (`clients=10`,
            `min_clients=2`), or a section as a mapping (`partition={"alpha": 0.1}`). Objects in
            place of names: `attacks=["similarity", MyAttack()]`; `dataset=` arrays, tensors, (N,
            C, H, W), with labels as a pair, a torch Dataset or DataLoader, a folder as a path;
            `model=` a function that returns a torch module.

    Returns:
        The run, finished or interrupted.

    Raises:
        InputError: bad input, in one line; nothing is written.
        FederationError: the federation failed; `out` has the report of its finished rounds.
    """
    from fedmia.simulate import run_experiment  # flwr and torch, which no other door needs
    from strategies.failure_policy import FederationError

    watch = Stopwatch(time.perf_counter())
    names = tuple(observe.split(",") if isinstance(observe, str) else observe)
    if resume is not None:
        settings = _resumed_settings(Path(resume), config, out, options, trust_plugins)
    else:
        settings = build_settings(SIMULATE, config, options, trust_plugins)
    with results_folder(resume or out) as folder, interrupts("rounds") as stop, own_threads():
        invocation = Invocation(
            settings, folder.path, quiet, observe=names, resume=resume is not None
        )
        outcome = run_experiment(invocation, watch, stop)
        say_not_run(outcome.report, quiet=quiet)
        if outcome.resumable and out is not None:
            print(
                f"fedmia: run_simulation(resume={str(folder.path)!r}) goes on with this run",
                file=sys.stderr,
            )
        if outcome.failure is not None:
            raise FederationError(f"{outcome.failure}; the finished rounds are reported on")
        return folder.open(trust_plugins=True)


def _resumed_settings(
    folder: Path, config: Config, out: str | Path | None, options: dict[str, Any], trust: bool
) -> Any:
    """The settings of a run that is continued; `options` may hold the objects that it was started
    with, and nothing else, `config` and `out` nothing at all."""
    run = RunFolder(folder, trust)
    if config is not None or out is not None:
        name = "config" if config is not None else "out"
        raise InputError(
            f"resume goes on with the settings of '{folder}': {name} cannot be given too"
        )
    if not run.config.is_file():
        raise InputError(f"resume='{folder}' is no run: it holds no {run.config.name}")
    tree = flatten(SIMULATE.settings, run.tree())
    again = options_tree(SIMULATE, options)  # gives the objects their names
    for path, value in flatten(SIMULATE.settings, again).items():
        run_value, value = plain(tree.get(path)), plain(value)
        if run_value != value:
            raise InputError(
                f"resume goes on with the settings of '{folder}', where {path} is "
                f"{format_value(run_value)}, not {format_value(value)}; leave it out"
            )
    return build_settings(SIMULATE, run.config, {}, trust)


class ResultsFolder:
    """The folder that a run writes, and the run in it.

    Args:
        path: of the folder.
        temporary: holds it where the user named none.
    """

    def __init__(self, path: Path, temporary: tempfile.TemporaryDirectory[str] | None) -> None:
        self.path, self.temporary = path, temporary

    def open(self, trust_plugins: bool = False) -> Run:
        """Open the run; a temporary folder lives as long as it does."""
        run = open_run(self.path, trust_plugins=trust_plugins)
        if self.temporary is not None:
            weakref.finalize(run, self.temporary.cleanup)
        return run


@contextmanager
def results_folder(out: str | Path | None) -> Iterator[ResultsFolder]:
    """The folder of results; a temporary one is removed if nothing opened it.

    Args:
        out: that the user named, or None.

    Yields:
        The folder.
    """
    if out is not None:
        yield ResultsFolder(Path(out), None)
        return
    temporary = tempfile.TemporaryDirectory(prefix="fedmia-")
    try:
        yield ResultsFolder(Path(temporary.name) / "run", temporary)
    except BaseException:
        temporary.cleanup()
        raise


@contextmanager
def interrupts(finished: str) -> Iterator[Event]:
    """Ctrl-C as on the command line, where this is the thread that Ctrl-C reaches.

    Args:
        finished: what is reported on after it, in words.

    Yields:
        An event that the first Ctrl-C sets.
    """
    if current_thread() is not main_thread():
        yield Event()
        return
    with Interrupts(finished) as stop:
        yield stop


@contextmanager
def own_threads() -> Iterator[None]:
    """Give torch the number of threads back that it had before."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
