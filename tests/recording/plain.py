"""A plain Flower app without a word of fedmia, and a grid whose nodes answer at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

NODES = (907, 11, 5003, 402, 77)  # ids of nodes are any numbers


def arrays(value: float) -> ArrayRecord:
    return ArrayRecord({"weight": Array(np.full((3, 2), value)), "bias": Array(np.zeros(2))})


def make_app(*mods: Any) -> ClientApp:
    """Client i of round r sends the weights that it received plus (i + 1) / r."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        round = message.content["config"]["server-round"]
        received = message.content["arrays"]
        sent = ArrayRecord(
            {n: Array(a.numpy() + (partition + 1) / round) for n, a in received.items()}
        )
        metrics = MetricRecord({"num-examples": 10 * (partition + 1), "loss": 0.5})
        return Message(RecordDict({"arrays": sent, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "accuracy": 0.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


class PlainGrid(Grid):
    """Five nodes, or so many, of which the last holds partition 0; the app's settings."""

    def __init__(
        self, app: Callable[[Message, Context], Message], nodes: int = len(NODES), **config: Any
    ) -> None:
        self._nodes, self._config = (*NODES, *range(9000, 9000 + nodes))[:nodes], config
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # as Flower's runners
        self._app, self._replies = app, dict[str, Message]()

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=1)

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return self._nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            node = message.metadata.dst_node_id
            partition = len(self._nodes) - 1 - self._nodes.index(node)
            where = {"partition-id": partition, "num-partitions": len(self._nodes)}
            context = Context(1, node, where, RecordDict(), self._config)
            message.metadata.__dict__["_message_id"] = name = f"{node}-{len(self._replies)}"
            try:
                self._replies[name] = self._app(message, context)
            except Exception as error:  # as Flower's nodes do
                self._replies[name] = Message(Error(0, str(error)), reply_to=message)
            yield name

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies[name] for name in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(list(self.push_messages(messages)))
