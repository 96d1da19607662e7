"""The nodes of a run: told of it, found to be its clients, and sent home."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from flwr.serverapp import Grid

from fedmia import __version__
from fedmia.config.experiment import Experiment
from fedmia.config.tree import to_tree
from fedmia.flower.store import ask
from fedmia.storage.outfolder import OutFolder
from strategies.base import wait_for_nodes
from strategies.failure_policy import FederationError

FAREWELL = 120.0  # seconds in which nodes are to say that they keep nothing


@contextlib.contextmanager
def open_nodes(
    grid: Grid, experiment: Experiment, place: OutFolder, private: bool
) -> Iterator[tuple[dict[int, int], dict[int, dict[str, Any]]]]:
    """Client -> node, and client -> what it found in the settings, of all clients; they keep
    nothing once the run is over.

    Raises:
        FederationError: the nodes are not the run's clients, or one cannot prepare the run.
    """
    tree, clients = to_tree(experiment), experiment.federation.clients
    ids = wait_for_nodes(grid, clients)
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


def check_agreement(found: dict[int, dict[str, Any]], **ours: Any) -> None:
    """See that every node has this fedmia, and found the same.

    Raises:
        FederationError: naming the first client that did not.
    """
    for client, theirs in found.items():
        for name, value in {"fedmia": __version__, **ours}.items():
            if theirs[name] != value:
                raise FederationError(f"client {client}: {name} {theirs[name]}, not {value}")
