"""Local states in a deployment: on the disk of each node, and how the server comes by them."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedmia.ssl.base import State
from fedmia.storage.snapshot import ClientState, StateStore, read_tensors, write_tensors
from strategies.failure_policy import FederationError

PATIENCE = 3600.0  # seconds in which every node answers
PAUSE = 0.1  # seconds between questions to Flower whether a node has answered


class NodeStore(StateStore):
    """Local states under a folder of the node's own disk, of the last two rounds of each branch.

    Tensors and memory lie in one file that is written whole: a node that is killed midway never
    finds the tensors of one round with the memory of another. A round that is ordered once more
    starts where it began, from the state of the round before it.

    Args:
        round: at work; None: the states are read as they are now.
    """

    def __init__(self, root: Path, round: int | None = None) -> None:
        self.root, self.round = root, round

    def load(self, branch: str, client: int) -> ClientState | None:
        kept = self._kept(branch, client)
        return ClientState(*read_tensors(kept[-1])) if kept else None

    def save(self, branch: str, client: int, state: ClientState) -> None:
        assert self.round is not None
        self._write(branch, client, self.round, state)
        for old in self._kept(branch, client)[:-1]:
            old.unlink()

    def fork_one(self, source: str, target: str, client: int) -> None:
        """Give branch `target` a copy of the client's state in branch `source`, if it has one."""
        if kept := self._kept(source, client):
            self._write(target, client, _round(kept[-1]), ClientState(*read_tensors(kept[-1])))

    def _kept(self, branch: str, client: int) -> list[Path]:
        """Files of the rounds before this one, in order."""
        files = sorted((self.root / branch / f"client-{client:04d}").glob("round-*.safetensors"))
        return [f for f in files if self.round is None or _round(f) < self.round]

    def _write(self, branch: str, client: int, round: int, state: ClientState) -> None:
        path = self.root / branch / f"client-{client:04d}" / f"round-{round:06d}.safetensors"
        keep(path, state.tensors, state.memory)


def _round(path: Path) -> int:
    return int(re.findall(r"\d+", path.name)[-1])


def keep(path: Path, tensors: State, about: object) -> None:
    """Write a file that `read_tensors` reads; it is on the disk, whole, when this returns."""
    partial = path.with_suffix(".new")
    write_tensors(tensors, partial, about)
    put(partial, path)


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

    def load(self, branch: str, client: int) -> ClientState | None:
        asked = {client: {"branch": branch}}
        content = ask(self._grid, self._nodes, "kept", asked)[client]
        if "memory" not in content.config_records:
            return None
        memory = json.loads(str(content.config_records["memory"]["json"]))
        return ClientState(content.array_records["tensors"].to_torch_state_dict(), memory)

    def save(self, branch: str, client: int, state: ClientState) -> None:
        raise NotImplementedError("a node's state is its own")

    def fork(self, source: str, target: str, clients: int) -> None:
        order = {"source": source, "target": target}
        ask(self._grid, self._nodes, "fork", dict.fromkeys(range(clients), order))


def kept_record(state: ClientState | None) -> RecordDict:
    """What a node answers to `kept`."""
    if state is None:
        return RecordDict()
    memory = ConfigRecord({"json": json.dumps(state.memory)})
    return RecordDict({"memory": memory, "tensors": ArrayRecord(torch_state_dict=state.tensors)})


def ask(
    grid: Grid, nodes: dict[int, int], action: str, orders: dict[int, dict[str, Any]],
    tensors: dict[str, ArrayRecord] | None = None, who: str = "client", patience: float = PATIENCE,
) -> dict[int, RecordDict]:  # fmt: skip
    """Client -> its node's answer to the query `action`, of each client in `orders`.

    Args:
        nodes: client -> Flower node id.

    Raises:
        FederationError: nodes failed, each named by its client, or did not answer.
    """
    out: dict[str, int] = {}
    for client, order in orders.items():
        content = RecordDict({"order": ConfigRecord(order), **(tensors or {})})
        to = nodes[client]
        message = Message(content, dst_node_id=to, message_type=f"query.{action}")
        out |= dict.fromkeys(grid.push_messages([message]), client)
    names = {nodes[client]: client for client in orders}
    found: dict[int, RecordDict] = {}
    failed: dict[int, str] = {}
    deadline = time.monotonic() + patience
    while silent := sorted(orders.keys() - found.keys() - failed.keys()):
        for reply in grid.pull_messages([name for name, c in out.items() if c in silent]):
            client = names[reply.metadata.src_node_id]
            if reply.has_error():
                failed[client] = f"{action}: {who} {client} failed: {reply.error.reason}"
            else:
                found[client] = reply.content
        if time.monotonic() > deadline:
            raise FederationError(f"{action}: no answer from {who}s {silent}")
        time.sleep(PAUSE)
    if failed:
        raise FederationError("; ".join(failed[client] for client in sorted(failed)))
    return found
