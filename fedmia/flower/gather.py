"""The server of a run on private images: rounds, and a report of each node's scores."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Event

from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import Grid

from fedmia.cli.command import Invocation
from fedmia.config.experiment import Experiment
from fedmia.evaluation.node import material
from fedmia.federation.run import FederationResult, Nodes, federate, make_client_context
from fedmia.flower.nodes import check_agreement, open_nodes
from fedmia.flower.private import check, prepare_server
from fedmia.flower.store import ask
from fedmia.report.publish import publish
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.manifest import SNAPSHOTS
from fedmia.storage.outfolder import OutFolder
from fedmia.storage.snapshot import MemoryStore, SnapshotStore
from strategies.failure_policy import FederationError


def gather(grid: Grid, asked: Invocation, place: OutFolder, watch: Stopwatch) -> None:
    """A run on images that stay where they are: each node's scores make a report of its own.

    Raises:
        InputError: settings that need shared images.
        FederationError: a node failed, or has other images than the others; what is finished is
            reported.
    """
    experiment: Experiment = asked.settings
    check(experiment)
    with open_nodes(grid, experiment, place, True) as (nodes, found):
        shape = {name: found[0][name] for name in ("channels", "size")}
        check_agreement(found, **shape)
        done = trained(experiment, shape, Nodes(grid, MemoryStore()), place, watch)
        left = {client: nodes[client] for client in nodes if client not in done.gone}
        with watch.part("attacks"):
            answers = scores_of(grid, left, done.snapshots)
    for client, content in sorted(answers.items()):
        folder = place.under(f"client-{client:04d}")
        report = publish(material(client, content, done), folder, watch)
        print(f"client {client}: {report['verdict']} Report: {folder}/report.html")
    if done.failure is not None:  # so that Flower marks the run as failed
        raise FederationError(f"{done.failure}; the finished rounds are reported on")


def trained(
    experiment: Experiment, shape: dict[str, int], nodes: Nodes, place: OutFolder, watch: Stopwatch
) -> FederationResult:
    """The rounds of the federation, by a server that holds no image."""
    assert place.folder is not None
    prepared = prepare_server(experiment, **shape)
    with tempfile.TemporaryDirectory(prefix="fedmia-") as made:
        client_context = make_client_context(prepared, Path(made), Event())
        return federate(
            prepared, client_context, Path(made), SnapshotStore(place.folder / SNAPSHOTS),
            probe=lambda state: None, watch=watch, display=Display(prepared.total_rounds(), True),
            nodes=nodes,
        )  # fmt: skip


def scores_of(grid: Grid, nodes: dict[int, int], snapshots: SnapshotStore) -> dict[int, RecordDict]:
    """What each client's node says of the encoder that the rounds ended with."""
    last = snapshots.rounds("main")[-1]
    models = {"final": snapshots.load("main", last), "untrained": snapshots.untrained()}
    tensors = {n: ArrayRecord(torch_state_dict=m.state) for n, m in models.items()}
    return ask(grid, nodes, "score", dict.fromkeys(nodes, {"last": last}), tensors)
