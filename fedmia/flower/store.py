"""Local states in a deployment: on the disk of each node, and how the server comes by them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedmia.options.bounded import parse_json
from fedmia.storage.arrays import tensors as read_arrays
from fedmia.storage.durable import make_folder
from fedmia.storage.snapshot import ClientState, StateStore, read_tensors, write_tensors
from strategies.failure_policy import FederationError
from strategies.replies import RETURN, NodeWatch, sender_of, wait_for_node

PATIENCE = 3600.0  # seconds in which every node answers
PAUSE = 0.1  # seconds between questions to Flower whether a node has answered


class NodeStore(StateStore):
    """Local states in a folder of the node's own disk, of the last two rounds of each branch.

    Tensors and memory are in one file, written as a whole: a node that is killed never finds the
    tensors of one round with the memory of another. A round that is ordered again starts from the
    state of the round before it.

    Args:
        root: folder of the node's own disk.
        round: at work; None: the states are read as they are now.
    """

    def __init__(self, root: Path, round: int | None = None) -> None:
        self.root, self.round = root, round

    def load(self, branch: str, client: int) -> ClientState | None:
        """The state before the round at work; None before the first round."""
        files = self._state_files(branch, client)
        return ClientState(*read_tensors(files[-1])) if files else None

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Write a state; the one before the last is deleted."""
        assert self.round is not None
        self._write(branch, client, self.round, state)
        for old in self._state_files(branch, client)[:-1]:
            old.unlink()

    def fork_one(self, source: str, target: str, client: int) -> None:
        """Give branch `target` a copy of the client's state in branch `source`, if it has one.

        Args:
            source: branch to copy from.
            target: branch to copy to.
            client: partition id of the client.
        """
        if files := self._state_files(source, client):
            self._write(target, client, _round(files[-1]), ClientState(*read_tensors(files[-1])))

    def _state_files(self, branch: str, client: int) -> list[Path]:
        """Files of the rounds before this one, in order."""
        files = sorted((self.root / branch / f"client-{client:04d}").glob("round-*.safetensors"))
        return [f for f in files if self.round is None or _round(f) < self.round]

    def _write(self, branch: str, client: int, round: int, state: ClientState) -> None:
        path = self.root / branch / f"client-{client:04d}" / f"round-{round:06d}.safetensors"
        make_folder(path.parent, self.root.parent)
        write_tensors(state.tensors, path, state.memory)


def _round(path: Path) -> int:
    return int(re.findall(r"\d+", path.name)[-1])


class NodeStates(StateStore):
    """The server's way to the states on its nodes. Only nodes of a rehearsal answer.

    Args:
        grid: Flower's way to the clients.
        nodes: partition id -> Flower node id.
    """

    def __init__(self, grid: Grid, nodes: dict[int, int]) -> None:
        self._grid, self._nodes = grid, nodes

    def load(self, branch: str, client: int) -> ClientState | None:
        """What a node keeps of a branch; None before its first round."""
        orders = {client: {"branch": branch}}
        content = ask(self._grid, self._nodes, "kept", orders)[client]
        if "memory" not in content.config_records:
            return None
        memory = parse_json(str(content.config_records["memory"]["json"]))
        return ClientState(read_arrays(content.array_records["tensors"]), memory)

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Not allowed: a node's state is its own."""
        raise NotImplementedError("a node's state is its own")

    def fork(self, source: str, target: str, clients: int) -> None:
        order = {"source": source, "target": target}
        ask(self._grid, self._nodes, "fork", dict.fromkeys(range(clients), order))


def pack_state(state: ClientState | None) -> RecordDict:
    """What a node answers to `kept`."""
    if state is None:
        return RecordDict()
    memory = ConfigRecord({"json": json.dumps(state.memory)})
    return RecordDict({"memory": memory, "tensors": ArrayRecord(torch_state_dict=state.tensors)})


def ask(
    grid: Grid, nodes: dict[int, int], action: str, orders: dict[int, dict[str, Any]],
    tensors: dict[str, ArrayRecord] | None = None, who: str = "client", patience: float = PATIENCE,
) -> dict[int, RecordDict]:  # fmt: skip
    """Send a query to the node of each client in `orders`, and wait for all answers.

    A node that left is asked again when it is back.

    Args:
        grid: Flower's way to the clients.
        nodes: client -> Flower node id.
        action: name of the query.
        orders: values to send to each client, by partition id.
        tensors: records to send with each order, by name.
        who: what an error calls the nodes.
        patience: seconds to wait.

    Returns:
        The answer of each client.

    Raises:
        FederationError: nodes failed, each named by its client, or did not answer.
    """
    out: dict[str, int] = {}

    def send(client: int) -> None:
        content = RecordDict({"order": ConfigRecord(orders[client]), **(tensors or {})})
        message = Message(content, dst_node_id=nodes[client], message_type=f"query.{action}")
        out.update(dict.fromkeys(grid.push_messages([message]), client))

    watch = NodeWatch(grid)
    for client in orders:
        send(client)
    names = {nodes[client]: client for client in orders}
    answers: dict[int, RecordDict] = {}
    failed: dict[int, str] = {}
    deadline = time.monotonic() + patience
    returned = time.monotonic() + min(patience, RETURN)
    while silent := sorted(orders.keys() - answers.keys() - failed.keys()):
        for reply in grid.pull_messages([name for name, c in out.items() if c in silent]):
            client = sender_of(reply, out, names)
            away = reply.has_error() and reply.error.code == ErrorCode.NODE_UNAVAILABLE
            if away and (left := returned - time.monotonic()) > 0:
                wait_for_node(grid, nodes[client], left)
                watch.note_sent(nodes[client])
                send(client)  # what is asked here can be asked twice
            elif reply.has_error():
                failed[client] = f"{action}: {who} {client} failed: {reply.error.reason}"
            else:
                answers[client] = reply.content
        for client in [names[node] for node in watch.find_restarted() & names.keys()]:
            if client in orders.keys() - answers.keys() - failed.keys():
                send(client)
        if time.monotonic() > deadline:
            raise FederationError(f"{action}: no answer from {who}s {silent}")
        time.sleep(PAUSE)
    if failed:
        raise FederationError("; ".join(failed[client] for client in sorted(failed)))
    return answers
