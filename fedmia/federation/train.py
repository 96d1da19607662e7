"""Train a planned run: its rounds on the backend asked for, and the climb on an untrained model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import torch
from flwr.serverapp import Grid

from clients.client_context import ClientContext
from fedmia.federation.backends import run_inline, run_ray
from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.ledger import Ledger
from fedmia.federation.observer import Observer
from fedmia.federation.outlook import describe_start
from fedmia.federation.plan import Plan, divergence_hint, forecasts, make_client_context
from fedmia.federation.readings import UNTRAINED
from fedmia.federation.recorder import TrajectoryRecorder
from fedmia.federation.result import FederationResult
from fedmia.federation.rounds import FederatedRun
from fedmia.federation.untrained import climb_untrained
from fedmia.federation.utility import Probes
from fedmia.recording.run import RunRecording
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.ssl.base import State
from fedmia.storage.archive import Archive
from fedmia.storage.manifest import CHECKPOINT, CHECKPOINT_INDEX, RECORDING
from fedmia.storage.runfolder import damaged
from fedmia.storage.snapshot import StateStore
from strategies.failure_policy import FailurePolicy


@dataclass(frozen=True)
class Nodes:
    """Clients that Flower runs elsewhere.

    Attributes:
        grid: Flower's way to the clients.
        store: local states of the clients.
    """

    grid: Grid
    store: StateStore


def train(
    plan: Plan,
    folder: Path,
    out: Path | None,
    stop: Event,
    watch: Stopwatch,
    display: Display,
    nodes: Nodes | None = None,
    checkpoint: Checkpoint | None = None,
) -> FederationResult:
    """Run the rounds of a plan on the chosen backend.

    Args:
        plan: settings, images and their roles.
        folder: of the images and of what clients keep, until the run is scored.
        out: of the results, where the models stay; None: in `folder`.
        stop: set when the user interrupts the run.
        watch: notes the seconds of each part.
        display: progress on the terminal.
        nodes: clients that Flower runs elsewhere, in place of a backend's.
        checkpoint: gone on with, and written as the rounds pass; it holds what clients keep.

    Returns:
        The rounds that are finished, and all that is scored.

    Raises:
        InputError: the checkpoint is damaged, or another run's.
        FederationError: a client failed.
    """
    for line in [*describe_start(plan), *forecasts(plan)]:
        display.line(line)
    client_context = make_client_context(plan, folder, stop)
    # From here on everyone maps the file: pages that nobody reads leave the memory.
    plan = replace(plan, data=replace(plan.data, images=client_context.images))
    probes, recorder = Probes(client_context, plan.data.labels, plan.split), None
    probe = probes.knn if len(plan.split.test_eval) else lambda state: None
    if plan.active is not None:
        recorder = TrajectoryRecorder(Observer(plan.experiment, client_context), plan.active)
    result = federate(
        plan,
        client_context,
        folder,
        RunRecording((out or folder) / RECORDING),
        recorder,
        probe=probe,
        watch=watch,
        display=display,
        nodes=nodes,
        checkpoint=checkpoint,
    )
    if recorder is not None and recorder.acted("main") and not recorder.acted(UNTRAINED):
        first = result.recording.untrained().state
        with watch.part("attacks"):
            climb_untrained(recorder, plan.experiment, result.schedule, first)
    return result


def federate(
    plan: Plan,
    client_context: ClientContext,
    folder: Path,
    recording: RunRecording,
    recorder: TrajectoryRecorder | None = None,
    *,
    probe: Callable[[State], float | None],
    watch: Stopwatch,
    display: Display,
    nodes: Nodes | None = None,
    checkpoint: Checkpoint | None = None,
) -> FederationResult:
    """Run the rounds of every branch.

    Args:
        plan: settings, images and their roles.
        folder: where the clients' states lie.
        recording: models and updates of the rounds, by branch.
        recorder: reads what the active client sees; None where no attack is active.
        probe: kNN accuracy of a global state; None where the images have no labels.
        watch: notes the seconds of each part.
        display: progress on the terminal.
        nodes: as in `train`.
        checkpoint: as in `train`.

    Returns:
        The rounds that are finished, and all that is scored.

    Raises:
        InputError: the checkpoint is damaged, or another run's.
        FederationError: a client failed.
    """
    torch.set_num_threads(client_context.threads)
    experiment, split = plan.experiment, plan.split
    states_folder = checkpoint.clients if checkpoint else folder / "clients"
    store: StateStore = nodes.store if nodes else Ledger(states_folder)
    options = experiment.federation
    least = max(options.min_clients, experiment.strategy.build("strategy").least)
    failure_policy = FailurePolicy(
        options.clients,
        options.on_failure,
        options.client_timeout,
        least,
        split.indispensable,
        say=display.line,
        hint=f"{divergence_hint(client_context)} if training diverged",
    )
    run = FederatedRun(
        experiment,
        client_context,
        split,
        store,
        recording,
        probe,
        recorder,
        watch,
        display,
        failure_policy,
        checkpoint,
    )
    if checkpoint:
        with damaged(checkpoint.root.parent, f"{CHECKPOINT}/{CHECKPOINT_INDEX}"):
            run.resume()
    if run.complete:
        display.say("rounds are finished")
    elif nodes:
        run.run(nodes.grid)
    elif experiment.backend == "ray":
        cpus = experiment.cpus_per_client or client_context.threads
        run_ray(
            run.run,
            client_context,
            store,
            cpus,
            experiment.gpus_per_client,
            experiment.ray_address,
            failure_policy.timeout,
            experiment.device,
            display.line,
        )
    else:
        len(client_context.images)  # opens the file
        run_inline(run.run, client_context, store, failure_policy.timeout)
    if run.failure is not None and not run.rounds:
        raise run.failure
    recording.pending()[1]()  # the report counts on it
    gone, archive = frozenset(failure_policy.gone), Archive(None)
    if checkpoint and run.head:
        archive = checkpoint.archive(f"{run.head.branch} {run.head.round} {sorted(gone)}")
    return FederationResult(
        plan,
        client_context,
        store,
        recording,
        run.rounds,
        run.complete,
        tuple(failure_policy.faults),
        gone,
        str(run.failure) if run.failure else None,
        archive,
        run.aggregation,
        recorder,
    )
