"""The server of a run on private images: rounds, and a report of each node's scores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import Grid

from fedmia.cli.command import Invocation
from fedmia.federation.ledger import Ledger
from fedmia.federation.result import TrainedRounds
from fedmia.federation.train import train
from fedmia.flower.answers import scores_from_node
from fedmia.flower.nodes import check_agreement, open_nodes
from fedmia.flower.private import check, gives_guarantee, plan_server, try_settings
from fedmia.flower.rounds import LogDisplay
from fedmia.flower.store import ask_each
from fedmia.observers.run_observers import ObserverGroup
from fedmia.recording.reader import RecordedRounds
from fedmia.records.rows import Report
from fedmia.report.publish import publish
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.tree import to_tree
from fedmia.storage.durable import make_folder
from fedmia.storage.outfolder import OutFolder
from fedmia.storage.runfolder import DAMAGE
from strategies.failure_policy import TRIES, FederationError
from strategies.replies import RETURN, RejectedReply

GUARANTEE = (
    "the guarantee of the defence covers weights alone, and scores of images would void it: nodes "
    "keep their scores, but for those whose --node-config says scores=true"
)


def gather(grid: Grid, invocation: Invocation, place: OutFolder, watch: Stopwatch) -> None:
    """Run on images that stay on their nodes; each node's scores make a report of its own.

    Args:
        invocation: the parsed command.
        place: where the server keeps the run.
        watch: notes the seconds of each part.

    Raises:
        InputError: settings that need shared images.
        FederationError: a node failed, or has other images than the others; what is finished is
            reported.
    """
    experiment: Experiment = invocation.settings
    assert place.folder is not None
    check(experiment)
    try_settings(experiment)
    if gives_guarantee(experiment):
        print(f"fedmia: {GUARANTEE}", flush=True)
    observing = ObserverGroup(invocation.observe, place.folder)
    with observing, open_nodes(grid, experiment, place, True) as (nodes, prepared_by):
        shape = {name: prepared_by[0][name] for name in ("channels", "size")}
        check_agreement(prepared_by, **shape)
        observing.begin(to_tree(experiment))
        done = run_rounds(experiment, shape, grid, place, watch, observing)
        remaining = {client: nodes[client] for client in nodes if client not in done.gone}
        failures = [] if done.failure is None else [str(done.failure)]
        policy = experiment.federation.on_failure
        with watch.part("attacks"):
            for client, answer in collect_scores(grid, remaining, done.recording, policy):
                if isinstance(answer, FederationError):
                    dropped = policy == "drop"
                    failures += [] if dropped else [str(answer)]
                    print(f"fedmia: {answer} ({'dropped' if dropped else 'no report'})", flush=True)
                    continue
                folder = place.folder / f"client-{client:04d}"
                try:
                    report = report_node(client, answer, done, folder, watch)
                    print(f"client {client}: {report.verdict} Report: {folder}/report.html")
                    observing.report(report, folder.name)
                except RejectedReply as error:
                    failures.append(str(error))
        if failures:  # so that Flower and observers mark the run as failed
            raise FederationError(f"{'; '.join(failures)}; all else is reported on")


def report_node(
    client: int, content: RecordDict, done: TrainedRounds, folder: Path | None, watch: Stopwatch
) -> Report:
    """Make the report of one node's scores.

    Args:
        client: partition id of the client.
        content: the node's answer.
        done: the rounds as the server saw them.
        folder: where files are written, in one that is there; None to write none.
        watch: notes the seconds of each part.

    Returns:
        The report.

    Raises:
        RejectedReply: the answer holds something else than scores, or an account that lacks rounds.
    """
    try:
        scores = scores_from_node(client, content, done)
        if folder is not None:
            make_folder(folder, folder.parent)
        return publish(scores, folder, watch)
    except DAMAGE as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise RejectedReply(f"client {client} sent no answer to report on: {why}") from error


def run_rounds(
    experiment: Experiment, shape: dict[str, int], grid: Grid, place: OutFolder,
    watch: Stopwatch, observing: ObserverGroup,
) -> TrainedRounds:  # fmt: skip
    """Run the rounds, on a server that holds no image.

    Args:
        shape: channels and size of the images.
        grid: Flower's way to the clients, which keep their states.
        place: where the server keeps the run.
        watch: notes the seconds of each part.
        observing: observers of the run.

    Returns:
        The rounds as the server saw them.
    """
    assert place.folder is not None
    plan = plan_server(experiment, **shape)
    with tempfile.TemporaryDirectory(prefix="fedmia-") as folder:
        display = LogDisplay(plan.total_rounds(), observing)
        return train(
            plan, Path(folder), place.folder, Event(), watch, display, grid, Ledger()
        )  # fmt: skip


def collect_scores(
    grid: Grid, nodes: dict[int, int], recording: RecordedRounds, on_failure: str
) -> Iterator[tuple[int, RecordDict | FederationError]]:
    """Ask each client's node to score the final encoder.

    Args:
        nodes: Flower node id of each client.
        recording: of the first and the last model.
        on_failure: as in the rounds: `retry` waits for a node that left, and asks one that fails
            again.

    Yields:
        Each client with its answer as it comes, or with the error why there is none.
    """
    last = recording.rounds("main")[-1]
    models = {"final": recording.models()[last], "untrained": recording.untrained()}
    tensors = {n: ArrayRecord(torch_state_dict=m) for n, m in models.items()}
    orders = dict.fromkeys(nodes, {"last": last})
    tries, comeback = (TRIES, RETURN) if on_failure == "retry" else (1, 0.0)
    yield from ask_each(grid, nodes, "score", orders, tensors, comeback=comeback, tries=tries)
