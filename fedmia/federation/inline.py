"""A Flower grid whose nodes are threads of this process."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any

import torch
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from clients.app import Answer, Together
from fedmia.federation.ledger import Ledger
from fedmia.flower_internals import set_identity
from fedmia.storage.arrays import make_lazy
from fedmia.storage.snapshot import ClientState, StateStore
from strategies.grids import GridExtras, ReplyObserver

SERVER = 1  # Flower's node id of the server; clients are the nodes after it
LOOK = 0.5  # seconds between looks for clients that are over their time
LEAVE = 5.0  # seconds that threads have to end
Work = Callable[[Message, int, ClientState | None, Event], Answer]


@dataclass(order=True)
class PendingMessage:
    """A message to a client that waits, is at work or was given up.

    Attributes:
        haste: the least goes first.
        name: the message's id.
        message: a message to a client.
        halt: set when nobody waits for the client any more.
        began: when the client began, by the monotonic clock; None while it waits.
        actor: the Ray actor that works on it.
    """

    haste: tuple[float, int]
    name: str = field(compare=False)
    message: Message = field(compare=False)
    halt: Event = field(default_factory=Event, compare=False)
    began: float = field(default=math.inf, compare=False)
    actor: Any = field(default=None, compare=False)


class LocalGrid(Grid, GridExtras):
    """A Flower grid whose clients are nodes, with node id = partition id + 2.

    A client's new state comes with its reply. The grid keeps it once the update is accepted.

    A client that gets no order costs nothing: which node it is follows from its number.

    Args:
        clients: number of clients.
        workers: how many clients work at once.
        store: local states of the clients.
        timeout: seconds that a client may work on an order; then it is given up. None: any number.
    """

    def __init__(
        self, clients: int, workers: int, store: StateStore, timeout: float | None
    ) -> None:
        set_identity(SERVER)
        self.clients = clients
        self._ahead = max(16, 4 * workers)
        self.store = store
        self._observe: ReplyObserver = lambda branch, client: None
        self._timeout = timeout
        self._names = itertools.count()
        self._changed = Condition()
        self._waiting: list[PendingMessage] = []
        self._working: dict[Any, PendingMessage] = {}
        self._done: dict[str, tuple[PendingMessage, Message, ClientState | None]] = {}
        self._took: dict[int, float] = {}
        self._brought: dict[int, tuple[PendingMessage, ClientState | None]] = {}

    def set_run(self, run: Any) -> None:
        """Flower's hook; a grid of our own has one run."""
        return None

    @property
    def run(self) -> Any:
        return None

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str,
        ttl: float | None = None,
    ) -> Message:  # fmt: skip
        """Flower's older way to a message."""
        return Message(
            content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id, ttl=ttl
        )

    def get_node_ids(self) -> Iterable[int]:
        """Node id of each client: its partition id + 2."""
        return range(SERVER + 1, SERVER + 1 + self.clients)

    def client_nodes(self) -> dict[int, int]:
        """Node id of each client, which no roll call has to ask for."""
        return dict(enumerate(self.get_node_ids()))

    @property
    def ahead(self) -> float:
        return self._ahead

    @property
    def stopped(self) -> bool:
        return False

    @property
    def device(self) -> str:
        return "cpu"

    def observe_replies(self, observe: ReplyObserver) -> None:
        self._observe = observe

    def get_nodes(self) -> Iterable[Any]:
        """Facts of those nodes that may begin anew: of none."""
        return ()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for all replies, which come as they came in.

        Args:
            messages: one for each client.
            timeout: not read; the grid has its own.

        Returns:
            The replies.
        """
        out, replies = set(self.push_messages(messages)), list[Message]()
        while len(replies) < len(out):
            replies += self.pull_messages(out)
        return replies

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue the messages; their ids."""
        orders = [self._sort_orders(message) for message in messages]
        with self._changed:
            for order in orders:
                heapq.heappush(self._waiting, order)
            self._changed.notify_all()
        return [order.name for order in orders]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies to the messages of these ids, as far as they are there."""
        wanted_ids = set(message_ids)
        with self._changed:
            if wanted_ids and not wanted_ids & self._done.keys():
                self._wait()
            self._give_up()
            done = [self._done.pop(name) for name in sorted(wanted_ids & self._done.keys())]
        for order, _, new in done:  # which waits for `accept`
            self._brought[order.message.metadata.dst_node_id] = order, new
            if branch := branch_of(order.message):  # a query is of none
                self._observe(branch, self.client(order))
        return [reply for _, reply, _ in done]

    @abstractmethod
    def _wait(self) -> None:
        """Until something happens, or LOOK seconds."""

    @abstractmethod
    def _abandon(self, order: PendingMessage) -> None:
        """Nobody waits for the client of an order any more: another worker takes its place."""

    def _give_up(self) -> None:
        """Answer for the clients that are over their time."""
        for key, order in list(self._working.items()):
            if self._timeout is not None and time.monotonic() - order.began > self._timeout:
                del self._working[key]
                self._abandon(order)
                late = error_reply(order.message, f"no answer within {self._timeout:g} s")
                self._done[order.name] = order, late, None

    def _sort_orders(self, message: Message) -> PendingMessage:
        """The slowest first, by their last order, so that none is waited for at the end."""
        number = next(self._names)
        took = self._took.get(message.metadata.dst_node_id, math.inf)
        return PendingMessage((-took, number), str(number), message)

    def accept(self, node: int) -> None:
        """The update of a node was taken: its state is now as its reply brought it."""
        order, state = self._brought.pop(node)
        if state is not None:
            self.store.save(branch_of(order.message), self.client(order), state)

    def load_client_state(self, order: PendingMessage) -> ClientState | None:
        """The client's state as its last reply left it."""
        return self.store.load(branch_of(order.message), self.client(order))

    def client(self, order: PendingMessage) -> int:
        """Partition id of an order's client."""
        return order.message.metadata.dst_node_id - SERVER - 1


def branch_of(message: Message) -> str:
    """The branch of the run that an order is of; none of the roll call's."""
    config = message.content.config_records.get("config")
    return str(config["branch"]) if config is not None else ""


def error_reply(message: Message, reason: str) -> Message:
    """The reply to a message on which a client failed."""
    return Message(Error(code=0, reason=reason), reply_to=message)


class InlineGrid(LocalGrid):
    """A grid whose clients are threads.

    Two threads train two small clients nearly twice as fast as one after the other: torch lets go
    of the interpreter lock inside its kernels. A fork after torch has started threads hangs.

    Args:
        work: answers an order of a client from what it keeps, told by an event when nobody waits
            for it any more.
        clients: number of clients.
        workers: clients at work at once.
        threads: of each, for torch.
        store: local states of the clients.
        timeout: seconds that a client may work on an order. It is not ended by force: its thread is
            left, and another takes its place.
        together: answers `at_once` orders in one pass, those that it can; None: no two.
        at_once: orders that a thread takes.
        say: shows a line to the user.
        device: where the clients train.
    """

    def __init__(
        self, work: Work, clients: int, workers: int, threads: int,
        store: StateStore | None = None, timeout: float | None = None,
        together: Together | None = None, at_once: int = 1,
        say: Callable[[str], None] = lambda line: None, device: str = "cpu",
    ) -> None:  # fmt: skip
        super().__init__(clients, workers, store or Ledger(), timeout)
        self._work_order, self._threads, self._device = work, threads, device
        self._together, self._at_once, self._say = together, at_once, say
        self._awaited = False
        # Some train while others are added up; who is pushed later begins another pass.
        self._ahead = at_once * max(workers + 1, -(-self._ahead // at_once))
        self._open = True
        self._workers = [self._start_worker() for _ in range(workers)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue the messages, slowest client first."""
        messages = list(messages)
        for record in [r for m in messages for r in m.content.array_records.values()]:
            make_lazy(record)
        return super().push_messages(messages)

    @property
    def device(self) -> str:
        return self._device

    def close(self) -> None:
        """End the threads; one that does not listen is left."""
        with self._changed:
            self._open = False
            self._waiting.clear()
            for order in self._working.values():
                order.halt.set()
            self._changed.notify_all()
        deadline = time.monotonic() + LEAVE
        for thread in self._workers:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start_worker(self) -> Thread:
        thread = Thread(target=self._work, name="client", daemon=True)
        thread.start()
        return thread

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while True:
            with self._changed:
                while self._open and not self._is_due():
                    self._changed.wait()
                if not self._open:
                    return
                most = min(self._at_once, len(self._waiting))
                orders = [heapq.heappop(self._waiting) for _ in range(most)]
                for order in orders:
                    order.began = time.monotonic()
                    self._working[order.name] = order
            answers = self._answer_all(orders)
            with self._changed:
                if None in [self._working.pop(order.name, None) for order in orders]:
                    return  # given up: another thread has its place
                for order, reply, new in answers:
                    if self._at_once == 1:  # else the order of the orders decides
                        took = time.monotonic() - order.began
                        self._took[order.message.metadata.dst_node_id] = took
                    self._done[order.name] = order, reply, new
                self._changed.notify_all()

    def _is_due(self) -> bool:
        """Whether orders may be taken: who trains with whom must not depend on how fast they come,
        so fewer than go in one pass wait until no more do."""
        return len(self._waiting) >= self._at_once or (self._awaited and bool(self._waiting))

    def _answer_all(
        self, orders: list[PendingMessage]
    ) -> list[tuple[PendingMessage, Message, ClientState | None]]:
        """The answers of those that work in one pass, and of each other by itself."""
        answers = dict[int, Answer]()
        if self._together is not None and len(orders) > 1:
            try:
                sent = [(o.message, self.client(o), self.load_client_state(o)) for o in orders]
                answers = self._together(sent, orders[0].halt)
            except Exception as error:  # each by itself says whose it was
                short = isinstance(error, torch.OutOfMemoryError)  # of memory for so many
                self._at_once = len(orders) // 2 if short else 1
                why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                self._say(f"{len(orders)} clients failed in one pass, now {self._at_once}: {why}")
        return [
            (order, *(answers[i] if i in answers else self._answer(order)))
            for i, order in enumerate(orders)
        ]

    def _answer(self, order: PendingMessage) -> Answer:
        try:
            local_state = self.load_client_state(order)
            return self._work_order(order.message, self.client(order), local_state, order.halt)
        except Exception as error:  # as Flower does: the strategy says whose it was
            return error_reply(order.message, f"{type(error).__name__}: {error}"), None

    def _wait(self) -> None:
        self._awaited = True
        self._changed.notify_all()
        self._changed.wait(LOOK)
        self._awaited = False

    def _abandon(self, order: PendingMessage) -> None:
        order.halt.set()
        self._workers.append(self._start_worker())
