"""The app of the server: a run over the nodes of a Flower grid, scored and reported here."""

from __future__ import annotations

import contextlib
import json
import shlex
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

from flwr.app import ArrayRecord, Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedmia import __version__
from fedmia.errors import InputError, opt
from fedmia.federation.run import Nodes, Prepared, federate, make_site
from fedmia.federation.snapshot import MemoryStore, SnapshotStore
from fedmia.flower.node import fingerprint, rehearsed
from fedmia.flower.private import check, nobody
from fedmia.flower.scores import read
from fedmia.flower.store import NodeStates, ask
from fedmia.report.publish import publish, show
from fedmia.results import RoundInfo, RunScores
from fedmia.runtime.environment import describe
from fedmia.runtime.outfolder import OutFolder
from fedmia.runtime.progress import Display
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.command import Invocation, parse
from fedmia.settings.commands import SIMULATE
from fedmia.settings.experiment import Experiment
from fedmia.settings.tree import to_tree
from fedmia.simulate import execute
from strategies.base import connected
from strategies.crew import FederationError

FAREWELL = 60.0  # seconds in which nodes are to say that they keep nothing

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run; Flower marks it as failed where this raises.

    Raises:
        InputError: arguments that `python -m fedmia.simulate` would refuse.
        FederationError: a node is missing, failed, or reads other data.
    """
    watch = Stopwatch(time.perf_counter())
    asked = invocation(str(context.run_config["arguments"]))
    out = str(context.run_config["out"]) or f"fedmia-run-{context.run_id}"
    place = OutFolder(Path(out).expanduser().absolute(), "another run")
    (gather if context.run_config["private"] else rehearse)(grid, asked, place, watch)


def invocation(arguments: str) -> Invocation:
    """What the arguments of `python -m fedmia.simulate`, in one line, ask of an app.

    Raises:
        InputError: a page in place of a run, a folder or a backend, which are Flower's to say.
    """
    asked = parse(SIMULATE, shlex.split(arguments))
    if asked.page is not None or asked.out is not None:
        raise InputError("the app's arguments are those of a run; its folder is the app's 'out'")
    if asked.settings.backend != "inline":
        raise InputError(f"{opt('backend', 'ray')}: the clients of a Flower app are its nodes")
    if asked.settings.federation.client_timeout is not None:
        raise InputError(f"{opt('federation.client_timeout')}: a node of Flower's cannot be halted")
    return asked


def rehearse(grid: Grid, asked: Invocation, place: OutFolder, watch: Stopwatch) -> None:
    """A run in which every node reads the one data source that the server reads too."""
    with watch.part("data"):
        prepared, _ = rehearsed(json.dumps(to_tree(asked.settings)))
    with underway(grid, asked, place, False) as (nodes, found):
        agree(found, fingerprint=fingerprint(prepared))
        beside = Nodes(grid, NodeStates(grid, nodes))
        scores = execute(prepared, place.folder, watch, Event(), True, beside)
    show(publish(scores, place.folder, watch), place.folder, json=False, quiet=False)


def gather(grid: Grid, asked: Invocation, place: OutFolder, watch: Stopwatch) -> None:
    """A run on images that stay where they are: each node's scores make a report of its own."""
    check(asked.settings)
    with underway(grid, asked, place, True) as (nodes, found):
        agree(found, **{name: found[0][name] for name in ("channels", "size")})
        prepared = nobody(asked.settings, found[0]["channels"], found[0]["size"])
        rounds, answers = trained(prepared, Nodes(grid, MemoryStore()), nodes, place, watch)
    for client, content in sorted(answers.items()):
        folder = place.under(f"client-{client:04d}")
        scores = told_by(client, content, asked.settings, rounds)
        report = publish(scores, folder, watch)
        print(f"client {client}: {report['verdict']} Report: {folder}/report.html")


def trained(
    prepared: Prepared, beside: Nodes, nodes: dict[int, int], place: OutFolder, watch: Stopwatch
) -> tuple[list[RoundInfo], dict[int, RecordDict]]:
    """The rounds, and what each node says of the encoder that they end with."""
    assert place.folder is not None
    snapshots = SnapshotStore(place.folder / "snapshots")
    with tempfile.TemporaryDirectory(prefix="fedmia-") as made:
        site = make_site(prepared, Path(made), Event())
        display = Display(prepared.total_rounds(), True)
        done = federate(
            prepared, site, Path(made), snapshots, probe=lambda state: None, watch=watch,
            display=display, nodes=beside,
        )  # fmt: skip
    last = snapshots.rounds("main")[-1]
    models = {"final": snapshots.load("main", last), "untrained": snapshots.untrained()}
    tensors = {n: ArrayRecord(torch_state_dict=m.state) for n, m in models.items()}
    with watch.part("attacks"):
        orders = dict.fromkeys(nodes, {"last": last})
        return done.rounds, ask(beside.grid, nodes, "score", orders, tensors)


def told_by(
    client: int, content: RecordDict, experiment: Experiment, rounds: list[RoundInfo]
) -> RunScores:
    """The report's material from one node's answer."""
    info, found = read(client, content)
    environment = describe()
    return RunScores(
        seed=experiment.seed,
        subject=f"a federated encoder, on the images of client {client}",
        clients=[info],
        rounds=rounds,
        notes=["The node scored its own images; its scores alone made this report."],
        config=to_tree(experiment),
        versions=environment["versions"] | {"commit": environment["commit"]},
        hardware=environment["hardware"],
        **found,
    )


@contextlib.contextmanager
def underway(
    grid: Grid, asked: Invocation, place: OutFolder, private: bool
) -> Iterator[tuple[dict[int, int], dict[int, dict[str, Any]]]]:
    """Client -> node, and client -> what it found in the settings, of all clients; they keep
    nothing once the run is over.

    Raises:
        FederationError: the nodes are not the run's clients, or one cannot prepare the run.
    """
    tree, clients = to_tree(asked.settings), asked.settings.federation.clients
    ids = connected(grid, clients)
    place.begin(tree)
    everyone = {i: i for i in ids}
    try:
        order = {"settings": json.dumps(tree), "private": private}
        answers = ask(grid, everyone, "begin", dict.fromkeys(ids, order), who="node")
        told = {node: dict[str, Any](a.config_records["found"]) for node, a in answers.items()}
        nodes = {int(found["client"]): node for node, found in told.items()}
        if sorted(nodes) != list(range(clients)) or len(nodes) < len(told):
            which = sorted(int(found["client"]) for found in told.values())
            raise FederationError(f"nodes of clients {which}, expected 0..{clients - 1}")
        yield nodes, {client: told[nodes[client]] for client in sorted(nodes)}
    except BaseException:
        place.give_up()
        raise
    finally:
        with contextlib.suppress(FederationError):  # one that failed cannot be told
            ask(grid, everyone, "end", dict.fromkeys(ids, {}), patience=FAREWELL)


def agree(found: dict[int, dict[str, Any]], **ours: Any) -> None:
    """See that every node has this fedmia, and found the same.

    Raises:
        FederationError: naming the first client that did not.
    """
    for client, theirs in found.items():
        for name, value in {"fedmia": __version__, **ours}.items():
            if theirs[name] != value:
                raise FederationError(f"client {client}: {name} {theirs[name]}, not {value}")
