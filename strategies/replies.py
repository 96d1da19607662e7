"""Orders out, updates in: in the order of partition ids, each as soon as it can be taken."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedmia.flower_internals import NODE_UNAVAILABLE
from fedmia.ssl.base import State, all_finite
from fedmia.storage.arrays import tensors
from fedmia.storage.snapshot import Update
from strategies.failure_policy import FailurePolicy, FederationError

PATIENCE = 3600.0  # seconds without any reply after which the nodes are given up
PAUSE = 0.05  # seconds between questions to a grid that does not wait by itself
RETURN = 600.0  # seconds in which a node that left may come back
RECOUNT = 1.0  # seconds between looks for a node that left
LOOK = 5.0  # seconds between looks for nodes that began anew


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
    watch = NodeWatch(grid)
    ahead = getattr(grid, "ahead", len(orders))  # a grid of Flower's own takes all at once
    for client in sorted(orders):
        while True:
            while client not in back:
                while waiting and len(out) + len(back) < ahead:
                    out |= push_order(grid, waiting.popleft(), orders)
                for reply in pull_replies(grid, out, orders, reader.round, watch):
                    answered = sender_of(reply, out, reader.names)
                    out = {name: c for name, c in out.items() if c != answered}
                    back[answered] = reply
            try:
                yield reader(back.pop(client))
                break
            except RejectedReply as error:
                if not failure_policy.note_failure(branch, reader.round, client, str(error)):
                    break
                wait_for_node(grid, orders[client].metadata.dst_node_id)
                watch.note_sent(orders[client].metadata.dst_node_id)
                out |= push_order(grid, client, orders)


def read_replies(replies: Iterable[Message], reader: ReplyReader) -> Iterator[Update]:
    """The update of each client, in the order of partition ids, once all replies came.

    Args:
        replies: of the whole cohort, in any order.
        reader: of them.

    Yields:
        Each accepted update.

    Raises:
        FederationError: a client sent no update that can be averaged, or nothing.
    """
    answers = {message.metadata.src_node_id: message for message in replies}
    if silent := [client for node, client in reader.names.items() if node not in answers]:
        raise FederationError(f"round {reader.round}: no reply from clients {silent}")
    for node, client in reader.names.items():
        try:
            yield reader(answers[node])
        except RejectedReply as error:
            raise FederationError(f"round {reader.round}: client {client} {error}") from error


def push_order(grid: Grid, client: int, orders: Mapping[int, Message]) -> dict[str, int]:
    """Send one client its order.

    Args:
        client: partition id of the client.
        orders: the message to each client, by partition id.

    Returns:
        The message's id, with the partition id.

    Raises:
        FederationError: a watch stopped the federation.
    """
    order = orders[client]
    message = Message(
        order.content, dst_node_id=order.metadata.dst_node_id,
        message_type=order.metadata.message_type, ttl=order.metadata.ttl,
    )  # fmt: skip
    names = dict.fromkeys(grid.push_messages([message]), client)
    if getattr(grid, "stopped", False):
        raise FederationError("the watch stopped the federation")
    return names


def sender_of(reply: Message, out: Mapping[str, int], names: Mapping[int, int]) -> int:
    """Who a reply is of, or about: for a node that is gone Flower's SuperLink answers itself.

    Args:
        reply: to one of the messages that are out.
        out: partition id of each message that awaits its reply.
        names: partition id of each node.

    Returns:
        The partition id.
    """
    about = reply.metadata.reply_to_message_id
    return out[about] if about in out else names[reply.metadata.src_node_id]


def wait_for_node(grid: Grid, node: int, patience: float = RETURN) -> None:
    """Wait until a node is connected. Of one that is not Flower says so when it is sent a message.

    Args:
        node: Flower node id of the client.
        patience: seconds to wait.
    """
    deadline = time.monotonic() + patience
    while node not in grid.get_node_ids() and time.monotonic() < deadline:
        time.sleep(RECOUNT)


class NodeWatch:
    """Which nodes began anew: what they had been sent is lost, and Flower tells nobody.

    A killed node that is back before Flower missed it would be waited for in vain.

    Args:
        grid: Flower's way to the clients.
    """

    def __init__(self, grid: Grid) -> None:
        self._list = grid.get_nodes
        self._began, self._next = self._look(), time.monotonic() + LOOK

    def note_sent(self, node: int) -> None:
        """A node is about to be sent a message: what it lost before is known."""
        self._began[node] = self._look().get(node, "")

    def find_restarted(self) -> set[int]:
        """Nodes that began anew since the last look; none where that was just now."""
        if time.monotonic() < self._next:
            return set()
        now = self._look()
        again = {node for node, began in now.items() if self._began.get(node, began) != began}
        self._began, self._next = self._began | now, time.monotonic() + LOOK
        return again

    def _look(self) -> dict[int, str]:
        return {info.node_id: info.last_activated_at for info in self._list()}


def pull_replies(
    grid: Grid, out: Mapping[str, int], orders: Mapping[int, Message], round: int, watch: NodeWatch
) -> list[Message]:
    """Wait for replies to the messages that are out.

    Args:
        out: partition id of each message that awaits its reply.
        orders: the message to each client, by partition id.
        round: number of the round, from 1.
        watch: knows which nodes began anew.

    Returns:
        At least one reply; an error for each client whose node began anew.

    Raises:
        FederationError: none came for PATIENCE seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while not (replies := list(grid.pull_messages(list(out)))):
        restarted = watch.find_restarted()
        silent = sorted(out.values())
        lost = [orders[c] for c in silent if orders[c].metadata.dst_node_id in restarted]
        if lost:
            error = Error(NODE_UNAVAILABLE, "its node began anew")
            return [Message(error, reply_to=order) for order in lost]
        if time.monotonic() > deadline:
            raise FederationError(f"round {round}: no reply from clients {silent}")
        time.sleep(PAUSE)
    return replies


@dataclass
class ReplyReader:
    """Reads the replies of a round, in their order.

    Attributes:
        received: the weights that its clients had.
        names: partition id of each node, ascending.
        round: number of the round, from 1.
        accept: called with the node of each update that is taken.
        halves: whether the strategy acts on the clients too.
        first: client and tensors of the round's first update, which all others must have too.
        hint: what helps where training diverged.
    """

    received: State
    names: Mapping[int, int]
    round: int
    accept: Callable[[int], None] = lambda node: None
    halves: bool = False
    first: tuple[int, set[str]] | None = None
    hint: str = "training diverged"

    def __call__(self, message: Message) -> Update:
        """The update in a reply.

        Raises:
            RejectedReply: an error, another message than an update, other names or shapes than the
                model's or the first update's, or values that are not finite.
        """
        if message.has_error():
            raise RejectedReply(f"failed: {message.error.reason}")
        client = self.names[node := message.metadata.src_node_id]
        try:
            values = {k: float(v) for k, v in message.content["metrics"].items()}  # type: ignore[arg-type]
            examples, sender = int(values.pop("num-examples")), values.pop("client", None)
            state = tensors(message.content["arrays"])  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, EOFError) as error:
            raise RejectedReply(f"sent no update: {type(error).__name__}: {error}") from error
        if sender is None and self.halves:
            raise RejectedReply(
                "sent no 'client': the strategy acts on clients too, on those of `clients.app`"
            )
        if sender not in (None, client):
            raise RejectedReply(f"sent an update in the name of client {sender:g}")
        if examples < 0:
            raise RejectedReply(f"says that it has {examples} images")
        self._check(state)
        self.first = self.first or (client, set(state))
        self.accept(node)
        return Update(client, self.round, state, examples, values)

    def _check(self, state: State) -> None:
        if unknown := sorted(set(state) - set(self.received)):
            raise RejectedReply(f"sent unknown {unknown[:3]}")
        if self.first is not None and (odd := sorted(set(state) ^ self.first[1])):
            raise RejectedReply(f"sent other tensors than client {self.first[0]}: {odd[:3]}")
        for name, tensor in state.items():
            own = self.received[name]
            if tensor.shape != own.shape or tensor.dtype != own.dtype:
                raise RejectedReply(f"sent a '{name}' of another shape or type")
            if not all_finite([tensor]):
                raise RejectedReply(f"sent a '{name}' that is not finite; {self.hint}")
