"""Local states in a deployment: on the disk of each node, and how the server comes by them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fedmia.federation.snapshot import LocalState, StateStore
from strategies.base import PATIENCE, FederationError


class NodeStore(StateStore):
    """Local states under a folder of the node's own disk, one file a branch and client.

    Tensors and memory lie in one file that is replaced whole, so that a node that is killed midway
    goes on from the round before, and never with the tensors of one round and the memory of
    another.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, branch: str, client: int) -> Path:
        return self.root / branch / f"client-{client:04d}.safetensors"

    def load(self, branch: str, client: int) -> LocalState | None:
        path = self._path(branch, client)
        if not path.exists():
            return None
        with safe_open(path, "pt") as file:
            memory = json.loads(file.metadata()["memory"])
        return LocalState(load_file(path), memory)

    def save(self, branch: str, client: int, state: LocalState) -> None:
        path = self._path(branch, client)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        tensors = {name: t.contiguous().cpu() for name, t in state.tensors.items()}
        save_file(tensors, partial, {"memory": json.dumps(state.memory)})
        put(partial, path)

    def fork_one(self, source: str, target: str, client: int) -> None:
        """Give branch `target` a copy of the client's state in branch `source`, if it has one."""
        if (state := self.load(source, client)) is not None:
            self.save(target, client, state)


def put(partial: Path, path: Path) -> None:
    """`partial` takes the place of `path`, once it is on the disk."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


class NodeStates(StateStore):
    """The server's way to what its nodes keep: it asks them. Only a rehearsal's nodes answer.

    Args:
        nodes: partition id -> Flower node id.
    """

    def __init__(self, grid: Grid, nodes: dict[int, int]) -> None:
        self._grid, self._nodes = grid, nodes

    def load(self, branch: str, client: int) -> LocalState | None:
        asked = {client: {"branch": branch}}
        content = ask(self._grid, self._nodes, "kept", asked)[client]
        if "memory" not in content.config_records:
            return None
        memory = json.loads(str(content.config_records["memory"]["json"]))
        return LocalState(content.array_records["tensors"].to_torch_state_dict(), memory)

    def save(self, branch: str, client: int, state: LocalState) -> None:
        raise NotImplementedError("a node's state is its own")

    def fork(self, source: str, target: str, clients: int) -> None:
        order = {"source": source, "target": target}
        ask(self._grid, self._nodes, "fork", dict.fromkeys(range(clients), order))


def kept_record(state: LocalState | None) -> RecordDict:
    """What a node answers to `kept`."""
    if state is None:
        return RecordDict()
    memory = ConfigRecord({"json": json.dumps(state.memory)})
    return RecordDict({"memory": memory, "tensors": ArrayRecord(torch_state_dict=state.tensors)})


def ask(
    grid: Grid, nodes: dict[int, int], action: str, orders: dict[int, dict[str, Any]],
    tensors: dict[str, ArrayRecord] | None = None,
) -> dict[int, RecordDict]:  # fmt: skip
    """Partition id -> its node's answer to the query `action`, of each client in `orders`.

    Raises:
        FederationError: a node failed or did not answer, named by its client.
    """
    names = {nodes[client]: client for client in orders}
    messages = []
    for client, order in orders.items():
        content = RecordDict({"config": ConfigRecord(order), **(tensors or {})})
        to = nodes[client]
        messages.append(Message(content, dst_node_id=to, message_type=f"query.{action}"))
    found = {}
    for reply in grid.send_and_receive(messages, timeout=PATIENCE):
        client = names[reply.metadata.src_node_id]
        if reply.has_error():
            raise FederationError(f"{action}: client {client} failed: {reply.error.reason}")
        found[client] = reply.content
    if silent := sorted(orders.keys() - found.keys()):
        raise FederationError(f"{action}: no answer from clients {silent}")
    return found
