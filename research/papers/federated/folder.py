"""A finished run opened again: its data and roles dealt anew from its settings and its seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import cast

from fedmia.evaluation.run import suite_of_run
from fedmia.evaluation.steps.failures import Failures
from fedmia.evaluation.suite import Suite
from fedmia.federation.ledger import Ledger
from fedmia.federation.plan import make_client_setup, make_plan
from fedmia.federation.result import TrainedRounds
from fedmia.recording.reader import RecordedRounds
from fedmia.runs import Run, open_run
from fedmia.settings.commands.compatibility import check_gpu
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError, prefix_errors
from fedmia.storage.runfolder import RunFolder


@contextmanager
def reopen_run(run: Run, device: str) -> Iterator[Suite]:
    """The attacks of a finished run on its stored models, while the context is open.

    Args:
        run: a finished run.
        device: where its models are placed.

    Yields:
        What its attacker holds of each model, and the images to score, dealt again.

    Raises:
        InputError: its data cannot be read again.
    """
    settings = cast(Experiment, run.settings)
    experiment = replace(settings, machine=replace(settings.machine, device=device))
    files = RunFolder(run.folder)
    check_gpu(device)
    with TemporaryDirectory(prefix="fedmia-") as work:
        with prefix_errors(str(files.config)):
            plan = make_plan(experiment)
            client_setup = make_client_setup(plan, Path(work), Event())
        store, gone = RecordedRounds(files.recording), files.dropped()
        done = TrainedRounds(plan, client_setup, Ledger(), store, [], True, gone=gone)
        choices, failures = experiment.attack_choices, Failures((Exception,))
        yield suite_of_run(done, plan, client_setup, done.cast, choices, done.archive, failures)


def open_finished_run(folder: Path, trust_plugins: bool) -> Run:
    """The finished run in `folder`.

    Args:
        folder: of the run.
        trust_plugins: whether plugins named by the folder are imported.

    Returns:
        The run.

    Raises:
        InputError: no run, or one that was not finished.
    """
    run = open_run(folder, trust_plugins=trust_plugins)
    if run.records and not isinstance(run.settings, Experiment):
        raise InputError(f"folder '{folder}' is no run, but an audit")
    return run
