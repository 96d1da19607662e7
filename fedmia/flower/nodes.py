"""The nodes of a run: told of it, found to be its clients, and sent home."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from typing import Any

from flwr.serverapp import Grid

from fedmia import __version__
from fedmia.flower.store import ask, ask_each, name_clients
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.tree import to_tree
from fedmia.storage.outfolder import OutFolder
from strategies.base import wait_for_nodes
from strategies.failure_policy import FederationError

FAREWELL = 120.0  # seconds in which nodes are to say that they keep nothing


@contextlib.contextmanager
def open_nodes(
    grid: Grid, experiment: Experiment, place: OutFolder, private: bool
) -> Iterator[tuple[dict[int, int], dict[int, dict[str, Any]]]]:
    """Begin the run on all nodes, and end it on all of them.

    Args:
        place: where the server keeps the run.
        private: whether nodes hold their own images.

    Yields:
        The node of each client, and what each client prepared.

    Raises:
        FederationError: the nodes are not the run's clients, or one cannot prepare the run.
    """
    tree, clients = to_tree(experiment), experiment.federation.clients
    ids = wait_for_nodes(grid, clients)
    place.begin(tree)
    everyone, answer_of, failed = {i: i for i in ids}, dict[int, dict[str, Any]](), list[str]()

    def who(some: Collection[int]) -> str:
        """Operators know clients, not the numbers that Flower gives to nodes."""
        if {*some} <= answer_of.keys():
            return name_clients([int(answer_of[node]["client"]) for node in some])
        present = {int(answer["client"]) for answer in answer_of.values()}
        silent = name_clients({*range(clients)} - present or {*range(clients)})
        return silent if len(some) == clients - len(present) else f"node of {silent}"

    try:
        order = {"settings": json.dumps(tree), "private": private}
        for node, answer in ask_each(grid, everyone, "begin", dict.fromkeys(ids, order), who=who):
            if isinstance(answer, FederationError):
                failed.append(str(answer))
            else:
                answer_of[node] = dict[str, Any](answer.config_records["found"])
        if failed:
            raise FederationError("; ".join(failed))
        nodes = {int(answer["client"]): node for node, answer in answer_of.items()}
        if sorted(nodes) != list(range(clients)) or len(nodes) < len(answer_of):
            which = sorted(int(answer["client"]) for answer in answer_of.values())
            raise FederationError(f"nodes of clients {which}, expected 0..{clients - 1}")
        yield nodes, {client: answer_of[nodes[client]] for client in sorted(nodes)}
    finally:
        back = FAREWELL if experiment.federation.on_failure == "retry" else 0.0
        with contextlib.suppress(FederationError):  # one that failed cannot be told
            how = {"who": who, "patience": FAREWELL, "comeback": back}
            ask(grid, everyone, "end", dict.fromkeys(ids, {}), **how)


def check_agreement(answers: dict[int, dict[str, Any]], **ours: Any) -> None:
    """Check that every node has this version of fedmia, and prepared the same run.

    Args:
        answers: what each node prepared, by client.
        ours: values that every node must have, by name.

    Raises:
        FederationError: naming the first client that did not.
    """
    for client, theirs in answers.items():
        for name, value in {"fedmia": __version__, **ours}.items():
            if theirs[name] != value:
                raise FederationError(f"client {client}: {name} {theirs[name]}, not {value}")
