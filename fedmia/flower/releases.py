"""What a node with images of its own lets out: stored before it leaves, and drawn once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from flwr.app import Message, MetricRecord, RecordDict

from fedmia.ssl.base import under
from fedmia.storage.arrays import record, tensors
from fedmia.storage.snapshot import ClientState, SingleStateStore, read_tensors, write_tensors


class Releases(SingleStateStore):
    """The node's state after its last release, and that release, in one file written as a whole.

    An order that comes again gets the same bytes as its answer. Any other order starts from the
    state after all releases, whatever round or branch it names: noise that is drawn twice is
    accounted twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        tensors, about = read_tensors(path) if path.is_file() else ({}, None)
        super().__init__(ClientState(under("state.", tensors), about["memory"]) if about else None)
        self._sent, self._about = under("sent.", tensors), about

    def answer(self, message: Message, work: Callable[[Releases], Message]) -> Message:
        """Answer an order: with the last release, if the order is the same, else with new work.

        Replies that failed, or that depend on no image, are not stored.

        Args:
            work: computes the answer.

        Returns:
            The reply.
        """
        order = digest(message.content)
        if self._about is None or self._about["order"] != order:
            reply = work(self)
            if reply.has_error() or self.new is None:
                return reply
            self._keep(order, self.new, reply.content)
            return Releases(self._path).answer(message, work)  # what is sent is what is stored
        metrics = MetricRecord(self._about["metrics"])
        content = RecordDict({"arrays": record(self._sent), "metrics": metrics})
        return Message(content, reply_to=message)

    def _keep(self, order: str, state: ClientState, content: RecordDict) -> None:
        both = {f"state.{n}": t for n, t in state.tensors.items()}
        both |= {f"sent.{n}": t for n, t in tensors(content.array_records["arrays"]).items()}
        metrics = dict(content.metric_records["metrics"])
        about = {"order": order, "memory": state.memory, "metrics": metrics}
        write_tensors(both, self._path, about)


def digest(order: RecordDict) -> str:
    """SHA-256 of the round, the weights and whatever else was ordered."""
    config = json.dumps(dict(order.config_records["config"]), sort_keys=True)
    sha = hashlib.sha256(config.encode())
    for name, arrays in sorted(order.array_records.items()):
        for tensor, array in sorted(arrays.items()):
            sha.update(f"|{name}|{tensor}|{array.dtype}|{array.shape}|".encode() + array.data)
    return sha.hexdigest()
