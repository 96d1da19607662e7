"""Orders out, updates in: in the order of partition ids, each as soon as it can be taken."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid
from torch import Tensor

from fedmia.options.errors import opt
from fedmia.ssl.base import State
from fedmia.storage.arrays import tensors
from fedmia.storage.snapshot import Update
from strategies.failure_policy import FailurePolicy, FederationError

PATIENCE = 3600.0  # seconds without any reply after which the nodes are given up
PAUSE = 0.05  # seconds between questions to a grid that does not wait by itself


class RejectedReply(Exception):
    """What a client did in place of an update that can be averaged: `failed: ..`, `sent ..`."""


def collect_updates(
    grid: Grid,
    orders: Mapping[int, Message],
    reader: ReplyReader,
    failure_policy: FailurePolicy,
    branch: str,
) -> Iterator[Update]:
    """The update of each client of the cohort, in the order of partition ids.

    Clients that are dropped give none. Only as many orders are out at once as the grid is `ahead`,
    so few updates wait in memory, whatever the number of clients.

    Args:
        grid: Flower's way to the clients.
        orders: the message to each client, by partition id.
        reader: of their replies.
        failure_policy: the clients, and what happens when one fails.
        branch: which federation of the run: `main`, `zero` or `placebo`.

    Yields:
        Each accepted update.

    Raises:
        FederationError: the failure policy ends the run, or no reply came for PATIENCE seconds.
    """
    waiting, out, back = deque(sorted(orders)), dict[str, int](), dict[int, Message]()
    nodes = {order.metadata.dst_node_id: client for client, order in orders.items()}
    ahead = getattr(grid, "ahead", len(orders))  # a grid of Flower's own takes all at once,
    accept = getattr(grid, "accept", lambda node: None)  # and its nodes keep their state
    for client in sorted(orders):
        while True:
            while client not in back:
                while waiting and len(out) + len(back) < ahead:
                    out |= push_order(grid, waiting.popleft(), orders)
                for reply in pull_replies(grid, out, reader.round):
                    answered = nodes[reply.metadata.src_node_id]
                    out = {name: c for name, c in out.items() if c != answered}
                    back[answered] = reply
            try:
                update = reader(back.pop(client))
                accept(orders[client].metadata.dst_node_id)
                yield update
                break
            except RejectedReply as error:
                if not failure_policy.note_failure(branch, reader.round, client, str(error)):
                    break
                out |= push_order(grid, client, orders)


def push_order(grid: Grid, client: int, orders: Mapping[int, Message]) -> dict[str, int]:
    """Send one client its order.

    Args:
        grid: Flower's way to the clients.
        client: partition id of the client.
        orders: the message to each client, by partition id.

    Returns:
        The message's id, with the partition id.
    """
    order = orders[client]
    message = Message(
        order.content, dst_node_id=order.metadata.dst_node_id,
        message_type=order.metadata.message_type, ttl=order.metadata.ttl,
    )  # fmt: skip
    return dict.fromkeys(grid.push_messages([message]), client)


def pull_replies(grid: Grid, out: Mapping[str, int], round: int) -> Iterable[Message]:
    """Wait for replies to the messages that are out.

    Args:
        grid: Flower's way to the clients.
        out: partition id of each message that awaits its reply.
        round: number of the round, from 1.

    Returns:
        At least one reply.

    Raises:
        FederationError: none came for PATIENCE seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while not (replies := list(grid.pull_messages(list(out)))):
        if time.monotonic() > deadline:
            silent = sorted(out.values())
            raise FederationError(f"round {round}: no reply from clients {silent}")
        time.sleep(PAUSE)
    return replies


@dataclass
class ReplyReader:
    """Reads the replies of a round, in their order.

    Attributes:
        received: the weights that its clients had.
        names: partition id of each node.
        round: number of the round, from 1.
        first: client and tensors of the round's first update, which all others must have too.
    """

    received: State
    names: Mapping[int, int]
    round: int
    first: tuple[int, set[str]] | None = None

    def __call__(self, message: Message) -> Update:
        """The update in a reply.

        Raises:
            RejectedReply: an error, another message than an update, other names or shapes than the
                model's or the first update's, or values that are not finite.
        """
        client = self.names[message.metadata.src_node_id]
        if message.has_error():
            raise RejectedReply(f"failed: {message.error.reason}")
        try:
            values = {k: float(v) for k, v in message.content["metrics"].items()}  # type: ignore[arg-type]
            sender, examples = int(values.pop("client")), int(values.pop("num-examples"))
            state = tensors(message.content["arrays"])  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RejectedReply(f"sent no update: {type(error).__name__}: {error}") from error
        if sender != client:
            raise RejectedReply(f"sent an update in the name of client {sender}")
        self._check(state)
        self.first = self.first or (client, set(state))
        return Update(client, self.round, state, examples, values)

    def _check(self, state: State) -> None:
        if unknown := sorted(set(state) - set(self.received)):
            raise RejectedReply(f"sent unknown {unknown[:3]}")
        if self.first is not None and (odd := sorted(set(state) ^ self.first[1])):
            raise RejectedReply(f"sent other tensors than client {self.first[0]}: {odd[:3]}")
        for name, tensor in state.items():
            if tensor.shape != self.received[name].shape or not all_finite(tensor):
                raise RejectedReply(
                    f"sent a '{name}' that is not finite or of another shape; a lower "
                    f"{opt('train.lr')} or a milder attack helps if training diverged"
                )


def all_finite(tensor: Tensor) -> bool:
    """Whether every value is finite. The sum tells it in a tenth of the time."""
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())
