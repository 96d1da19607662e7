"""The template of every strategy: what its server does in a round, and what its clients do."""

from __future__ import annotations

import itertools
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedmia.options.option import Options
from fedmia.options.seeding import rng
from fedmia.records import Epsilon
from fedmia.ssl.base import State
from fedmia.storage.arrays import record, tensors
from fedmia.storage.snapshot import StrategyContext, Update
from strategies.failure_policy import Adversary, FailurePolicy, FederationError
from strategies.replies import RejectedReply, ReplyReader, replies

Seen = Callable[[Update], None]
Metrics = dict[str, float]


def ignore_update(update: Update) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class RoundRange:
    """A stretch of rounds of one branch.

    Attributes:
        branch: `main`, `zero` or `placebo`; clients keep their state by branch.
        first: rounds already behind; the stretch runs first + 1 .. last.
        craft: whether the active attacker may craft.
        participation: share of clients in a round's cohort, in (0, 1].
        seed: of the cohorts, and of what the server draws; not the run's where none may draw them
            again (`fedmia.options.seeding.root`).
        total: rounds of the whole branch.
        malicious: clients in the attacker's role, to whom no privacy is promised.
    """

    branch: str
    first: int
    last: int
    craft: bool
    participation: float
    seed: int = field(repr=False)
    total: int = 0
    malicious: tuple[int, ...] = ()


@dataclass(frozen=True)
class Round:
    """A round that is done: its new global weights, each client's metrics, its seconds."""

    number: int
    state: State
    metrics: dict[int, Metrics]
    seconds: float


@dataclass
class FederatedStrategy(Options, Strategy):
    """A strategy as options: the server's half and the client's half of one method.

    Subclasses are dataclasses, one a file, and say `aggregate`; every other method is the identity
    by default. The client's half runs on an instance of each client's own, built anew each round:
    what must last goes into `Local.kept` and `Local.memory`.

    Attributes:
        singles: its server looks at single updates, which secure aggregation hides.
        compares: an attacker who knows its rule has to guess the honest clients' updates.
        private: it promises clients differential privacy.
        gradients: it reads gradients off the clients' steps, which want to be those of SGD.
        strength: of one that defends, the option that says how strong it is, or empty.
        strengths: values of it that a trade-off tries, from mild to strong.
    """

    paper: ClassVar[str] = ""
    singles: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    private: ClassVar[bool] = False
    gradients: ClassVar[bool] = False
    strength: ClassVar[str] = ""
    strengths: ClassVar[tuple[float, ...]] = ()

    course: RoundRange | None = field(default=None, init=False, repr=False)
    nodes: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _global: State = field(default_factory=dict, init=False, repr=False)

    # -- the server's half ---------------------------------------------------------------------

    @abstractmethod
    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        """New global weights from the round's first ones and the updates, sorted by client.

        Updates come one at a time and once: a strategy that folds each into a sum holds one of
        them, whatever their number; one that needs all makes a list of them.
        """

    def broadcast(self) -> State:
        """What every client of the coming round receives beside the weights."""
        return {}

    @property
    def least(self) -> int:
        """Fewest updates that a round needs."""
        return 1

    def check(self, norm: str) -> None:
        """Refuse a setting in which the strategy is void.

        Args:
            norm: `group`, `batch`, or `local`: batch norm whose statistics stay with the client.

        Raises:
            InputError: with the reason.
        """
        return None

    def privacy(self, against: Adversary) -> Epsilon | None:
        """The privacy statement for a client after the rounds aggregated; None: none is made."""
        return None

    def aggregation_metrics(self, against: Adversary) -> Metrics:
        """What is reported of the aggregation: of its last round, or over all."""
        return {}

    # -- the client's half ---------------------------------------------------------------------

    def begin(self, local: StrategyContext) -> State:
        """The weights that local training starts from."""
        return local.received

    def after_backward(self, local: StrategyContext) -> None:
        """Change the gradients of `local.weights` in place, before each step of the optimizer.

        Under DP-SGD they are clipped and noised by then, so what is added here costs no privacy as
        long as it rests on what the client has received and sent alone.
        """
        return None

    def finish(self, local: StrategyContext, trained: State, sent: State) -> dict[str, float]:
        """Keep what the next round needs; metrics that travel with the upload, and that a defence
        does not hold back: like gradients above they rest on what was received and sent alone.

        Args:
            trained: the weights after training. sent: those that leave the client, after its
                defence; of an active attacker what it crafted.
        """
        return {}

    # -- an attacker who knows the server's half -----------------------------------------------

    def passing(
        self, received: State, crafted: State, told: State, guesses: Sequence[State], fellows: int
    ) -> State:
        """What is nearest to `crafted` that the server would let through.

        Args:
            told: the broadcast of the round. guesses: of honest clients' uploads, none unless the
                strategy `compares`. fellows: malicious clients that upload the same.
        """
        return crafted

    # -- the rounds ----------------------------------------------------------------------------

    def rounds(
        self, grid: Grid, course: RoundRange, state: State, failure_policy: FailurePolicy,
        seen: Seen = ignore_update,
    ) -> Iterator[Round]:  # fmt: skip
        """The rounds of `course` from `state`, each as it is done, after a roll call of the nodes.

        Args:
            seen: told of each update that is taken, in the order of partition ids.

        Raises:
            FederationError: as the crew's policy says.
        """
        self.course, self.nodes = course, self.nodes or call_roll(grid, failure_policy.clients)
        names = {node: client for client, node in self.nodes.items()}
        arrays = record(state)
        for turn in range(1, course.last - course.first + 1):
            began, round = time.perf_counter(), course.first + turn
            asked = self.configure_train(turn, arrays, ConfigRecord(), grid)
            orders = {names[order.metadata.dst_node_id]: order for order in asked}
            orders = {client: orders[client] for client in failure_policy.present(orders)}
            judge = ReplyReader(self._global, names, round)
            metrics = self._aggregate_updates(
                replies(grid, orders, judge, failure_policy, course.branch), seen
            )
            failure_policy.require_updates(round, len(metrics))
            arrays = record(self._global)
            yield Round(round, self._global, metrics, time.perf_counter() - began)

    def mean(self, updates: Iterable[Update], weighting: str = "uniform") -> State:
        """Mean of the updates, each added in float64 as it comes; empty if none does.

        Args:
            weighting: `uniform`, or by a client's number of images: `examples`.
        """
        total, summed, types = 0.0, State(), {}
        for update in updates:
            weight = float(update.examples) if weighting == "examples" else 1.0
            total += weight
            for name, sent in update.state.items():
                if name in summed:
                    summed[name].add_(sent, alpha=weight)
                else:
                    summed[name] = sent.to(torch.float64, copy=True).mul_(weight)
                    types[name] = sent.dtype
        return {name: tensor.div_(total).to(types[name]) for name, tensor in summed.items()}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        assert self.course is not None
        course, round = self.course, self.course.first + server_round
        self._global = tensors(arrays)
        told = ConfigRecord({"round": round, "craft": course.craft, "branch": course.branch})
        content = RecordDict({"arrays": arrays, "config": told})
        if sent := self.broadcast():
            content["broadcast"] = record(sent)
        return [
            Message(content, dst_node_id=self.nodes[c], message_type=MessageType.TRAIN)
            for c in draw_cohort(course, round, len(self.nodes))
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """For Flower's own loop, whose replies come all at once and must all be sound."""
        assert self.course is not None
        names = {node: client for client, node in self.nodes.items()}
        judge = ReplyReader(self._global, names, self.course.first + server_round)
        try:
            self._aggregate_updates(
                map(judge, sorted(replies, key=lambda m: names[m.metadata.src_node_id]))
            )
        except RejectedReply as error:
            raise FederationError(f"round {judge.round}: a client {error}") from error
        return record(self._global), MetricRecord()

    def _aggregate_updates(
        self, updates: Iterable[Update], seen: Seen = ignore_update
    ) -> dict[int, Metrics]:
        """Aggregate the updates that rest on images; metrics of all of them, by client."""
        metrics = dict[int, Metrics]()

        def trained() -> Iterator[Update]:
            for update in updates:
                metrics[update.client] = update.metrics
                seen(update)
                if update.examples:
                    yield update

        left = trained()
        if (first := next(left, None)) is not None:
            self._global |= self.aggregate(self._global, itertools.chain([first], left))
        for _ in left:  # of a strategy that wanted no more
            pass
        return metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return []  # probes and attacks are run on snapshots, not by clients

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        return None

    def summary(self) -> None:
        return None


def call_roll(grid: Grid, clients: int, patience: float = 120.0) -> dict[int, int]:
    """Partition id -> Flower node id, asked of every node once.

    Raises:
        FederationError: fewer nodes than clients after `patience` seconds.
    """
    ids = wait_for_nodes(grid, clients, patience)
    asked = [Message(RecordDict(), dst_node_id=i, message_type=MessageType.QUERY) for i in ids]
    found = {}
    for reply in grid.send_and_receive(asked):
        if reply.has_error():
            raise FederationError(f"a client failed the roll call: {reply.error.reason}")
        client = reply.content["metrics"]["client"]
        found[int(client)] = reply.metadata.src_node_id  # type: ignore[arg-type]
    if sorted(found) != list(range(clients)):
        raise FederationError(f"roll call: clients {sorted(found)}, expected 0..{clients - 1}")
    return found


def wait_for_nodes(grid: Grid, clients: int, patience: float = 120.0) -> list[int]:
    """Flower node ids, as many as there are clients or more.

    Raises:
        FederationError: fewer after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while len(ids := list(grid.get_node_ids())) < clients:
        if time.monotonic() > deadline:
            raise FederationError(f"{len(ids)} of {clients} clients connected")
        time.sleep(0.1)
    return ids


def draw_cohort(course: RoundRange, round: int, clients: int) -> list[int]:
    """Sorted partition ids that take part in `round`: a seeded draw without replacement."""
    size = max(1, int(course.participation * clients + 0.5))
    if size >= clients:
        return list(range(clients))
    drawn = rng(course.seed, "cohort", round).choice(clients, size, replace=False)
    return sorted(int(c) for c in drawn)
