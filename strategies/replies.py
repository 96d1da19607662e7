"""Orders out, updates in: in the order of partition ids, each as soon as it can be taken."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedmia.flower_internals import NODE_UNAVAILABLE
from fedmia.ssl.base import State, all_finite
from fedmia.storage.arrays import tensors
from fedmia.storage.snapshot import Update
from strategies.failure_policy import FailurePolicy, FederationError
from strategies.grids import extras_of

PATIENCE = 3600.0  # seconds without any reply after which the nodes are given up
PAUSE = 0.05  # seconds between questions to a grid that does not wait by itself
RETURN = 600.0  # seconds in which a node that left may come back
RECOUNT = 1.0  # seconds between looks for a node that left
LOOK = 5.0  # seconds between looks for nodes that began anew


class RejectedReply(Exception):
    """What a client did in place of an update that can be averaged: `failed: ..`, `sent ..`."""


class Exchange:
    """Messages to clients, and the replies as they come; nobody's absence holds up the others.

    A node that left may come back: whoever sends decides whether it is waited for. A node that
    began anew lost what it had been sent, and Flower tells nobody: a killed node that is back
    before Flower missed it would be waited for in vain.

    Args:
        grid: Flower's way to the clients.
        messages: the message to each client, by partition id.
        idempotent: whether a message may do its work twice: a node that began anew is then sent it
            again. Else the client's reply is an error.

    Attributes:
        waiting: clients that have not answered, each with the id of its message; None where none
            is out.
        away: those that are sent their message again once their node is connected, each with the
            time at which it is sent in any case.
    """

    def __init__(self, grid: Grid, messages: Mapping[int, Message], idempotent: bool) -> None:
        self._grid, self._messages, self._idempotent = grid, messages, idempotent
        self._node = {client: sent.metadata.dst_node_id for client, sent in messages.items()}
        self._client = {node: client for client, node in self._node.items()}
        self.waiting, self.away = dict[int, str | None](), dict[int, float]()
        self._began, self._next_look = self._look_up_nodes(), time.monotonic() + LOOK
        self._next_count = 0.0

    def send(self, client: int) -> None:
        """Send a client its message.

        Args:
            client: partition id of the client.

        Raises:
            FederationError: a watch stopped the federation.
        """
        message, self.waiting[client] = self._messages[client], None
        self.away.pop(client, None)
        again = Message(
            message.content, dst_node_id=self._node[client],
            message_type=message.metadata.message_type, ttl=message.metadata.ttl,
        )  # fmt: skip
        names = list(self._grid.push_messages([again]))
        if not names and extras_of(self._grid).stopped:
            raise FederationError("the watch stopped the federation")
        self.waiting[client] = next(iter(names), None)

    def send_again(self, client: int, patience: float = math.inf) -> None:
        """Send a client its message again as soon as its node is connected.

        Args:
            client: partition id of the client.
            patience: seconds after which it is sent in any case. Of a node that is not connected
                Flower says so then.
        """
        self.waiting[client], self.away[client] = None, time.monotonic() + patience
        self._next_count = 0.0
        self._send_to_returned()

    def drop(self, client: int) -> None:
        """Wait for a client no longer.

        Args:
            client: partition id of the client.
        """
        self.waiting.pop(client, None)
        self.away.pop(client, None)

    def pull(self) -> dict[int, Message]:
        """Take the replies that have come, and send again what is due.

        Returns:
            Replies by client, errors among them.
        """
        sent = {name: client for client, name in self.waiting.items() if name is not None}
        pulled = self._grid.pull_messages(list(sent)) if sent else ()
        replies = {self._sender(reply, sent): reply for reply in pulled}
        for client in replies:
            self.drop(client)
        for client in self._find_restarted():
            if self._idempotent:
                self._resend(client)
            else:
                replies[client] = self._fail(client, NODE_UNAVAILABLE, "its node began anew")
        unsent = {client for client, name in self.waiting.items() if name is None}
        for client in sorted(unsent - self.away.keys()):
            replies[client] = self._fail(client, 0, "Flower did not take its message")
        self._send_to_returned()
        return replies

    def _fail(self, client: int, code: int, reason: str) -> Message:
        self.drop(client)
        return Message(Error(code, reason), reply_to=self._messages[client])

    def _sender(self, reply: Message, sent: Mapping[str, int]) -> int:
        """Who a reply is of, or about: for a node that left Flower's SuperLink answers itself."""
        about = reply.metadata.reply_to_message_id
        return sent[about] if about in sent else self._client[reply.metadata.src_node_id]

    def _send_to_returned(self) -> None:
        if not self.away or time.monotonic() < self._next_count:
            return
        connected, now = {*self._grid.get_node_ids()}, time.monotonic()
        self._next_count = now + RECOUNT
        for client, until in list(self.away.items()):
            if self._node[client] in connected or now >= until:
                self._resend(client)

    def _resend(self, client: int) -> None:
        node = self._node[client]
        self._began[node] = self._look_up_nodes().get(node, "")  # what it lost before is known
        self.send(client)

    def _find_restarted(self) -> list[int]:
        """Clients whose node began anew since the last look; none where that was just now."""
        if time.monotonic() < self._next_look:
            return []
        now = self._look_up_nodes()
        restarted = {node for node, began in now.items() if self._began.get(node, began) != began}
        self._began, self._next_look = self._began | now, time.monotonic() + LOOK
        present = self.waiting.keys() - self.away.keys()
        return sorted(client for client in present if self._node[client] in restarted)

    def _look_up_nodes(self) -> dict[int, str]:
        """When each node began."""
        return {info.node_id: info.last_activated_at for info in self._grid.get_nodes()}


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
    exchange, extras = Exchange(grid, orders, idempotent=False), extras_of(grid)
    unsent, back = deque(sorted(orders)), dict[int, Message]()
    for client in sorted(orders):
        while True:
            while client not in back:
                while unsent and len(exchange.waiting) + len(back) < extras.ahead:
                    exchange.send(unsent.popleft())
                back |= wait_for_replies(exchange, reader.round)
            try:
                update = reader(back.pop(client))
                extras.accept(orders[client].metadata.dst_node_id)
                yield update
                break
            except RejectedReply as error:
                if not failure_policy.note_failure(branch, reader.round, client, str(error)):
                    break
                exchange.send_again(client, RETURN)


def wait_for_replies(exchange: Exchange, round: int) -> dict[int, Message]:
    """Wait for replies to the orders that are out.

    Args:
        exchange: of a round's orders.
        round: number of the round, from 1.

    Returns:
        At least one reply, by client.

    Raises:
        FederationError: none came for PATIENCE seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while not (replies := exchange.pull()):
        now = time.monotonic()
        if exchange.away:  # these are waited for RETURN seconds more
            deadline = now + PATIENCE
        elif now > deadline:
            silent = sorted(exchange.waiting)
            raise FederationError(f"round {round}: no reply from clients {silent}")
        time.sleep(PAUSE)
    return replies


def read_replies(grid: Grid, replies: Iterable[Message], reader: ReplyReader) -> Iterator[Update]:
    """The update of each client, in the order of partition ids, once all replies came.

    Args:
        grid: through which they came.
        replies: of the whole cohort, in any order.
        reader: of them.

    Yields:
        Each accepted update.

    Raises:
        FederationError: a client sent no update that can be averaged, or nothing.
    """
    extras = extras_of(grid)
    answers = {message.metadata.src_node_id: message for message in replies}
    if silent := [client for node, client in reader.names.items() if node not in answers]:
        raise FederationError(f"round {reader.round}: no reply from clients {silent}")
    for node, client in reader.names.items():
        try:
            update = reader(answers[node])
        except RejectedReply as error:
            raise FederationError(f"round {reader.round}: client {client} {error}") from error
        extras.accept(node)
        yield update


class ReplyReader:
    """Reads the replies of a round, in their order.

    Args:
        received: the weights that its clients had.
        names: partition id of each node, ascending.
        round: number of the round, from 1.
        halves: whether the strategy acts on the clients too.

    Attributes:
        first: client and tensors of the round's first update, which all others must have too.
        hint: what helps where training diverged.
    """

    def __init__(
        self, received: State, names: Mapping[int, int], round: int, halves: bool = False
    ) -> None:
        self.received, self.names, self.round, self.halves = received, names, round, halves
        self.first: tuple[int, set[str]] | None = None
        self.hint = "training diverged"

    def __call__(self, message: Message) -> Update:
        """The update in a reply.

        Raises:
            RejectedReply: an error, another message than an update, other names or shapes than the
                model's or the first update's, or values that are not finite.
        """
        if message.has_error():
            raise RejectedReply(f"failed: {message.error.reason}")
        client = self.names[message.metadata.src_node_id]
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
        state = self._check(state)
        self.first = self.first or (client, set(state))
        return Update(client, self.round, state, examples, values)

    def _check(self, state: State) -> State:
        """An update that can be averaged, where the model is."""
        if unknown := sorted(set(state) - set(self.received)):
            raise RejectedReply(f"sent unknown {unknown[:3]}")
        if self.first is not None and (odd := sorted(set(state) ^ self.first[1])):
            raise RejectedReply(f"sent other tensors than client {self.first[0]}: {odd[:3]}")
        for name, tensor in state.items():
            own = self.received[name]
            if tensor.shape != own.shape or tensor.dtype != own.dtype:
                raise RejectedReply(f"sent a '{name}' of another shape or type")
        # In the model's order, as sums over tensors are rounded by it: a replay reads files.
        places = {name: own.device for name, own in self.received.items() if name in state}
        state = {n: t if (t := state[n]).device == at else t.to(at) for n, at in places.items()}
        if all_finite(state.values()):  # a GPU is waited for once
            return state
        name = next(name for name, tensor in state.items() if not all_finite([tensor]))
        raise RejectedReply(f"sent a '{name}' that is not finite; {self.hint}")
