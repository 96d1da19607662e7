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


def replies(
    grid: Grid,
    orders: Mapping[int, Message],
    judge: ReplyReader,
    failure_policy: FailurePolicy,
    branch: str,
) -> Iterator[Update]:
    """The update of each client that was ordered, by partition id, less those that are dropped.

    Only as many orders are out as the grid is `ahead`, so that the updates which wait for their
    turn are few, whatever the number of clients.

    Args:
        judge: of their replies.

    Raises:
        FederationError: as the crew's policy says, or no reply came for PATIENCE seconds.
    """
    waiting, out, back = deque(sorted(orders)), dict[str, int](), dict[int, Message]()
    nodes = {order.metadata.dst_node_id: client for client, order in orders.items()}
    ahead = getattr(grid, "ahead", len(orders))  # a grid of Flower's own takes all at once,
    accept = getattr(grid, "accept", lambda node: None)  # and its nodes keep their state
    for client in sorted(orders):
        while True:
            while client not in back:
                while waiting and len(out) + len(back) < ahead:
                    out |= pushed(grid, waiting.popleft(), orders)
                for reply in pulled(grid, out, judge.round):
                    answered = nodes[reply.metadata.src_node_id]
                    out = {name: c for name, c in out.items() if c != answered}
                    back[answered] = reply
            try:
                update = judge(back.pop(client))
                accept(orders[client].metadata.dst_node_id)
                yield update
                break
            except RejectedReply as error:
                if not failure_policy.note_failure(branch, judge.round, client, str(error)):
                    break
                out |= pushed(grid, client, orders)


def pushed(grid: Grid, client: int, orders: Mapping[int, Message]) -> dict[str, int]:
    """The name of the message by which `client` now has its order."""
    order = orders[client]
    message = Message(
        order.content, dst_node_id=order.metadata.dst_node_id,
        message_type=order.metadata.message_type, ttl=order.metadata.ttl,
    )  # fmt: skip
    return dict.fromkeys(grid.push_messages([message]), client)


def pulled(grid: Grid, out: Mapping[str, int], round: int) -> Iterable[Message]:
    """Some replies to the messages that are out.

    Raises:
        FederationError: none came for PATIENCE seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while not (found := list(grid.pull_messages(list(out)))):
        if time.monotonic() > deadline:
            silent = sorted(out.values())
            raise FederationError(f"round {round}: no reply from clients {silent}")
        time.sleep(PAUSE)
    return found


@dataclass
class ReplyReader:
    """Reads the replies of a round, in their order.

    Attributes:
        received: the weights that its clients had. names: partition id of each node.
        first: client and tensors of the round's first update, which all others must have too.
    """

    received: State
    names: Mapping[int, int]
    round: int
    first: tuple[int, set[str]] | None = None

    def __call__(self, message: Message) -> Update:
        """The update in a reply.

        Raises:
            Refused: an error, another message than an update, other names or shapes than the
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
    """Whether every value is. A sum that is says so of all at a tenth of the time."""
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())
