"""What a node keeps on its own disk, and what it lets out: stored before it leaves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Message, MetricRecord, RecordDict

from clients.app import Answer, LocalState
from fedmia.ssl.base import State, under
from fedmia.storage.arrays import record, tensors
from fedmia.storage.durable import make_folder
from fedmia.storage.snapshot import ClientState, StateStore, read_tensors, write_tensors


class NodeStore(StateStore):
    """Of each branch and client the state after the last release, and that release, in one file.

    The file is written as a whole: a node that is killed never finds the tensors of one round with
    the memory of another. An order that comes again gets the same bytes as its answer. Any other
    order starts from the state after all releases, whatever round it names: noise that is drawn
    twice is accounted twice.

    Args:
        root: folder of the node's own disk.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def load(self, branch: str, client: int) -> ClientState | None:
        """The state after the last release; None before the first."""
        stored, about = self._read(branch, client)
        return ClientState(under("state.", stored), about["memory"]) if about else None

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Keep a state that no release of the branch came with."""
        self._write(branch, client, state, {}, {})

    def fork(self, source: str, target: str, clients: int) -> None:
        """Give branch `target` the states of branch `source`, as far as they are here."""
        for client in range(clients):
            if (state := self.load(source, client)) is not None:
                self.save(target, client, state)

    def answer(
        self, branch: str, client: int, message: Message, work: Callable[[LocalState], Answer]
    ) -> Message:
        """Answer an order: with the last release, if the order is the same, else with new work.

        Replies that failed, or that depend on no image, are not stored.

        Args:
            branch: of the state.
            client: partition id of the client.
            message: the order.
            work: computes the answer, and what the client keeps, from what it keeps.

        Returns:
            The reply.
        """
        order, (stored, about) = digest(message.content), self._read(branch, client)
        if about.get("order") != order:
            reply, state = work(self.load(branch, client))
            if state is None:
                return reply
            sent = tensors(reply.content.array_records["arrays"])
            about = {"order": order, "metrics": dict(reply.content.metric_records["metrics"])}
            self._write(branch, client, state, sent, about)
            stored, about = self._read(branch, client)  # what is sent is what is stored
        arrays, metrics = record(under("sent.", stored)), MetricRecord(about["metrics"])
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    def _write(
        self, branch: str, client: int, state: ClientState, sent: State, about: dict[str, Any]
    ) -> None:
        both = {f"state.{n}": t for n, t in state.tensors.items()}
        both |= {f"sent.{n}": t for n, t in sent.items()}
        make_folder(self.root, self.root.parent)
        write_tensors(both, self._file(branch, client), {"memory": state.memory, **about})

    def _read(self, branch: str, client: int) -> tuple[State, dict[str, Any]]:
        """All tensors and what is written about them; nothing where there is no file."""
        path = self._file(branch, client)
        return read_tensors(path) if path.is_file() else ({}, {})

    def _file(self, branch: str, client: int) -> Path:
        return self.root / f"{branch}-{client:04d}.safetensors"


def digest(order: RecordDict) -> str:
    """SHA-256 of the round, the weights and whatever else was ordered."""
    config = json.dumps(dict(order.config_records["config"]), sort_keys=True)
    sha = hashlib.sha256(config.encode())
    for name, arrays in sorted(order.array_records.items()):
        for tensor, array in sorted(arrays.items()):
            sha.update(f"|{name}|{tensor}|{array.dtype}|{array.shape}|".encode() + array.data)
    return sha.hexdigest()
