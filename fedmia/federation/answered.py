"""A Flower grid on which nobody works: a function answers each order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from clients.app import write_content
from fedmia.federation.inline import SERVER
from fedmia.flower_internals import identify
from fedmia.ssl.base import State
from fedmia.storage.arrays import tensors
from fedmia.storage.snapshot import Update
from strategies.grids import PlainExtras

Answer = Callable[[int, int, State], Update]


class AnsweredGrid(Grid, PlainExtras):
    """Clients whose updates are known, or follow from what they receive: controls and replays.

    Args:
        clients: number of clients; the node of each is its partition id + 1.
        answer: of the partition id, the round and the weights that the client received: its update.
        device: where the server works.
    """

    def __init__(self, clients: int, answer: Answer, device: str = "cpu") -> None:
        identify(SERVER)  # a run that goes on after its rounds has made no other grid
        self._clients, self._answer, self._device = clients, answer, device
        self._names = itertools.count()
        self._orders = dict[str, Message]()

    def set_run(self, run: Any) -> None:
        """Flower's hook; there is no run."""
        return None

    @property
    def run(self) -> Any:
        return None

    @property
    def device(self) -> str:
        return self._device

    def create_message(self, *args: Any, **options: Any) -> Message:
        """Flower's older way to a message."""
        return Message(*args, **options)

    def get_node_ids(self) -> Iterable[int]:
        """Node id of each client."""
        return range(1, 1 + self._clients)

    def client_nodes(self) -> dict[int, int]:
        """Node id of each client, which no roll call has to ask for."""
        return dict(enumerate(self.get_node_ids()))

    def get_nodes(self) -> Iterable[Any]:
        """Facts of those nodes that may begin anew: of none."""
        return ()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take orders; their ids."""
        orders = {str(next(self._names)): message for message in messages}
        self._orders |= orders
        return [*orders]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to the orders of these ids, made now."""
        return [self._reply(self._orders.pop(name)) for name in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """The replies to messages.

        Args:
            messages: one for each client.
            timeout: not read.

        Returns:
            The replies.
        """
        return self.pull_messages(self.push_messages(messages))

    def _reply(self, order: Message) -> Message:
        arrays: Any = order.content.array_records["arrays"]
        config: Any = order.content.config_records["config"]
        client, round = order.metadata.dst_node_id - 1, config["server-round"]
        update = self._answer(client, round, tensors(arrays))
        return Message(write_content(update), reply_to=order)
