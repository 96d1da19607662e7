"""Train a planned run: its rounds on the backend asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event

import torch
from flwr.serverapp import Grid

from clients.client_group import count_together
from fedmia import __version__
from fedmia.federation.backends import run_inline, run_ray
from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.ledger import Ledger
from fedmia.federation.notetaker import NoteTaker
from fedmia.federation.outlook import describe_start
from fedmia.federation.plan import Plan, forecasts, make_client_setup
from fedmia.federation.result import TrainedRounds
from fedmia.federation.rounds import FederatedRun
from fedmia.federation.utility import Probes
from fedmia.recording.format import Header
from fedmia.recording.writer import RecordingWriter
from fedmia.records.note import Note
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.archive import Archive
from fedmia.storage.manifest import CHECKPOINT, CHECKPOINT_INDEX
from fedmia.storage.runfolder import RunFolder, damaged
from fedmia.storage.snapshot import StateStore


def train(
    plan: Plan,
    folder: Path,
    out: Path | None,
    stop: Event,
    watch: Stopwatch,
    display: Display,
    grid: Grid | None = None,
    store: StateStore | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainedRounds:
    """Run the rounds of a plan on the chosen backend.

    Args:
        plan: settings, images and their roles.
        folder: of the images and of what clients keep, until the run is scored.
        out: of the results, where the models stay; None: in `folder`.
        stop: set when the user interrupts the run.
        watch: notes the seconds of each part.
        display: progress on the terminal.
        grid: of clients that Flower runs elsewhere, in place of a backend's.
        store: of their local states.
        checkpoint: gone on with, and written as the rounds pass; it holds what clients keep.

    Returns:
        The rounds that are finished, and all that is scored.

    Raises:
        InputError: the checkpoint is damaged, or another run's.
        FederationError: a client failed.
    """
    for line in [*describe_start(plan), *forecasts(plan)]:
        display.line(line)
    client_setup = make_client_setup(plan, folder, stop)
    # From here on everyone maps the file: pages that nobody reads leave the memory.
    data = replace(plan.cast.data, images=client_setup.images)
    plan = replace(plan, cast=plan.cast.with_data(data))
    inline = grid is None and plan.experiment.machine.backend == "inline"
    if inline and (at_once := count_together(client_setup)[0]) > 1:
        note = Note("clients-in-passes", {"clients": at_once})
        plan = replace(plan, notes=[*plan.notes, note])
    probes, notes = Probes(client_setup, plan.cast), None
    probe = probes.knn if len(plan.cast.ids("test_eval")) else lambda state: None
    if client_setup.attack is not None:
        notes = NoteTaker(client_setup, client_setup.attack)
    states_folder = checkpoint.clients if checkpoint else folder / "clients"
    device = client_setup.device  # where clients' states are
    card = 0 if device == "cpu" else torch.cuda.get_device_properties(device).total_memory // 8
    store = store or Ledger(states_folder, device_room=card)
    strategy, place = plan.experiment.strategy.name, RunFolder(out or folder)
    header = Header({"fedmia": __version__, "strategy": strategy}, every=0)
    recording = RecordingWriter(place.recording, header, plan.cast)
    if notes is not None:
        recording.describe_attacker(notes.targets, notes.about)
    run = FederatedRun(
        plan, client_setup, store, recording, probe, notes, watch, display, checkpoint
    )
    return federate(run, grid)


def federate(run: FederatedRun, grid: Grid | None = None) -> TrainedRounds:
    """Run the rounds of every branch that are left.

    Args:
        run: its branches; goes on with its checkpoint.
        grid: of clients that Flower runs elsewhere, in place of a backend's.

    Returns:
        The rounds that are finished, and all that is scored.

    Raises:
        InputError: the checkpoint is damaged, or another run's.
        FederationError: a client failed.
    """
    client_setup, checkpoint, display = run.client_setup, run.checkpoint, run.display
    torch.set_num_threads(client_setup.threads)
    if checkpoint:
        with damaged(checkpoint.root.parent, f"{CHECKPOINT}/{CHECKPOINT_INDEX}"):
            run.resume()
    if run.complete:
        display.say("rounds are finished")
    elif grid:
        run.run(grid)
    elif run.experiment.machine.backend == "ray":
        run_ray(run.run, client_setup, run.store, display.line)
    else:
        len(client_setup.images)  # opens the file
        run_inline(run.run, client_setup, run.store, display.line)
    if run.failure is not None and not run.rounds:
        raise run.failure
    run.finish_notes()
    run.recording.flush()  # the report counts on it
    gone, archive = frozenset(run.failure_policy.gone), Archive(None)
    if checkpoint and run.head:
        archive = checkpoint.archive(f"{run.head.branch} {run.head.round} {sorted(gone)}")
    return TrainedRounds(
        run.plan,
        client_setup,
        run.store,
        run.recording,
        run.rounds,
        run.complete,
        tuple(run.failure_policy.faults),
        gone,
        str(run.failure) if run.failure else None,
        archive,
        run.aggregation,
        run.trained,
    )
