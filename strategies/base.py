"""The template of every strategy: what its server does in a round, and what its clients do."""

from __future__ import annotations

import itertools
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor

from fedmia.records.privacy import Epsilon
from fedmia.settings import Options
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State, on_device
from fedmia.storage.arrays import record, tensors
from fedmia.storage.snapshot import ExpectedRound, LocalTraining, Update
from strategies.cohort import Phase, draw_cohort
from strategies.failure_policy import Adversary, FailurePolicy, FederationError
from strategies.grids import extras_of
from strategies.replies import ReplyReader, collect_updates, read_replies

SETTLE = 1.0  # seconds between two counts of nodes, where nobody says how many there are
UpdateObserver = Callable[[Update], None]
Metrics = dict[str, float]


def ignore_update(update: Update) -> None:
    """Take no notice of an update."""


@dataclass(frozen=True)
class FinishedRound:
    """One finished round.

    Attributes:
        number: number of the round.
        state: new global weights.
        metrics: metrics of each client, by partition id.
        seconds: wall-clock seconds.
    """

    number: int
    state: State
    metrics: dict[int, Metrics]
    seconds: float


@dataclass
class FederatedStrategy(Options, Strategy):
    """A strategy as options: the server's half and the client's half of one method.

    Subclasses are dataclasses, one a file, and say `aggregate`; every other method is the identity
    by default. The client's half runs on an instance of each client's own, built anew each round:
    what must last goes into `LocalTraining.own_state` and `LocalTraining.memory`.

    Attributes:
        phase: the rounds at work.
        nodes: Flower node id of each client.
        singles: its server looks at single updates, which secure aggregation hides.
        compares: an attacker who knows its rule has to guess the honest clients' updates.
        private: it promises clients differential privacy.
        gradients: it reads gradients off the clients' steps, which want to be those of SGD.
        strength: of one that defends, the option that says how strong it is, or empty.
        strengths: values of it that a trade-off tries, from mild to strong.
        neutral: options under which its server averages as FedAvg: without noise, clipping, own
            rate or momentum. Empty: the defaults do, or none.
    """

    paper: ClassVar[str] = ""
    singles: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    private: ClassVar[bool] = False
    gradients: ClassVar[bool] = False
    strength: ClassVar[str] = ""
    strengths: ClassVar[tuple[float, ...]] = ()
    neutral: ClassVar[Mapping[str, Any]] = {}

    phase: Phase = field(default=Phase("main", 0, 0, False, 1.0, 0), init=False, repr=False)
    nodes: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _global: State = field(default_factory=dict, init=False, repr=False)
    _reader: ReplyReader | None = field(default=None, init=False, repr=False)
    _grid: Grid | None = field(default=None, init=False, repr=False)

    # -- the server's half ---------------------------------------------------------------------

    @abstractmethod
    def aggregate(self, received: State, updates: Iterable[Update]) -> State:
        """Aggregate the updates of a round into new global weights.

        Updates arrive one at a time, and only once. A strategy that adds each of them to a sum
        holds one update in memory, whatever the number of clients. A strategy that needs all of
        them makes a list. All tensors are on one device, perhaps a GPU: what is drawn on the CPU
        has to go there, and what is read in Python is waited for.

        Args:
            received: global weights of the round; they and the updates must not be changed.
            updates: one update at a time, by ascending partition id.

        Returns:
            New global weights; a tensor that is missing stays as it was.
        """

    def broadcast(self) -> State:
        """What every client of the next round receives beside the weights."""
        return {}

    @property
    def least(self) -> int:
        """The smallest number of updates that a round needs."""
        return 1

    def check(self, norm: str) -> None:
        """Refuse settings under which the strategy has no effect.

        Args:
            norm: `group`, `batch`, or `local`: batch norm whose statistics stay with the client.

        Raises:
            InputError: with the reason.
        """
        return None

    def privacy(self, against: Adversary) -> Epsilon | None:
        """A client's privacy statement after the aggregated rounds; None where there is none."""
        return None

    def aggregation_metrics(self, against: Adversary) -> Metrics:
        """What the report says of the aggregation: of its last round, or over all rounds."""
        return {}

    # -- the client's half ---------------------------------------------------------------------

    def begin(self, local: LocalTraining) -> State:
        """The weights that local training starts from."""
        return local.received

    def after_backward(self, local: LocalTraining) -> None:
        """Change the gradients of `local.weights` in place, before each step of the optimizer.

        Under DP-SGD the gradients are clipped and noised by then. A change that depends only on
        what the client received and sent costs no further privacy.
        """
        return None

    def finish(self, local: LocalTraining, trained: State, sent: State) -> dict[str, float]:
        """Keep what the next round needs, and give metrics that travel with the upload.

        Defences do not withhold these metrics: they depend only on what the client received and
        sent.

        Args:
            local: the client's side of the round.
            trained: the weights after training.
            sent: those that leave the client, after its defence; of an active attacker what it
                crafted.

        Returns:
            Metrics by name.
        """
        return {}

    # -- an attacker who knows the server's half -----------------------------------------------

    def passing(self, crafted: State, expected: ExpectedRound) -> State:
        """The nearest weights to `crafted` that the server's rule would let through.

        Args:
            crafted: weights that an active attack would upload.
            expected: the round.

        Returns:
            Weights that the server would accept.
        """
        return crafted

    # -- the rounds ----------------------------------------------------------------------------

    def rounds(
        self, grid: Grid, phase: Phase, state: State, failure_policy: FailurePolicy,
        observe: UpdateObserver = ignore_update,
    ) -> Iterator[FinishedRound]:  # fmt: skip
        """Federated averaging, cohort to aggregate (Algorithm 1 of McMahan et al., 2017).

        Args:
            phase: which rounds, of which branch.
            state: global weights before the first of them.
            failure_policy: the clients, and what happens when one fails.
            observe: called with each accepted update, in the order of partition ids.

        Yields:
            Each round as soon as it is aggregated.

        Raises:
            FederationError: the failure policy ends the run, or no client replies.
        """
        self.phase, self.nodes = phase, self.nodes or find_nodes(grid, failure_policy.clients)
        # What the server has is where updates come: they are added up there.
        arrays = record(on_device(state, extras_of(grid).device))
        self._move_to(extras_of(grid).device)
        for round in range(phase.first + 1, phase.last + 1):
            began = time.perf_counter()
            # 1. Draw the cohort, less the clients that were dropped.
            cohort = draw_cohort(phase, round, len(self.nodes))
            cohort = [client for client in cohort if client not in failure_policy.gone]
            # 2. Send each client the global model, and what the strategy broadcasts beside it.
            orders, reader = self._open_round(round, arrays, cohort)
            reader.hint = failure_policy.hint
            # 3. Each client trains on its own images (`clients.app`) and uploads an update, which
            #    is checked as it arrives. A client that fails is asked again, or dropped.
            updates = collect_updates(grid, orders, reader, failure_policy, phase.branch)
            # 4. Aggregate the updates into the new global model, in the order of partition ids.
            metrics = self._aggregate_updates(updates, observe)
            # 5. Refuse an aggregate of too few updates.
            failure_policy.require_updates(round, len(metrics))
            # 6. Hand the round over, and begin the next one with the aggregate.
            arrays = record(self._global)
            yield FinishedRound(round, self._global, metrics, time.perf_counter() - began)

    def _open_round(
        self, round: int, arrays: ArrayRecord, cohort: Sequence[int],
        config: Mapping[str, Any] = {},
    ) -> tuple[dict[int, Message], ReplyReader]:  # fmt: skip
        """The message to each client of the cohort, by partition id, and what reads the replies."""
        self._global = tensors(arrays)
        phase, order = self.phase, dict[str, Any](config)
        order |= {"server-round": round, "craft": phase.craft, "branch": phase.branch}
        content = RecordDict({"arrays": arrays, "config": ConfigRecord(order)})
        if broadcast := self.broadcast():
            content["broadcast"] = record(broadcast)
        orders = {
            client: Message(content, dst_node_id=self.nodes[client], message_type=MessageType.TRAIN)
            for client in cohort
        }
        client_of_node = {self.nodes[client]: client for client in cohort}
        return orders, ReplyReader(self._global, client_of_node, round, self.has_halves)

    def _move_to(self, device: str) -> None:
        """Have what the server keeps between rounds on a device."""
        for name, value in vars(self).items():
            if isinstance(value, dict) and all(isinstance(t, Tensor) for t in value.values()):
                setattr(self, name, on_device(value, device))

    @property
    def has_halves(self) -> bool:
        """Whether it acts on the clients too, which those of another app know nothing of."""
        halves = "begin", "after_backward", "finish"
        return any(getattr(type(self), n) is not getattr(FederatedStrategy, n) for n in halves)

    def mean(self, updates: Iterable[Update], weighting: str = "uniform") -> State:
        """The mean of the updates, summed in float64 where they are, as they arrive; empty without
        updates.

        Args:
            updates: one update at a time, by ascending partition id.
            weighting: `uniform`, or by a client's number of images: `examples`.

        Returns:
            The mean, in the types of the updates.
        """
        total, summed, types = 0.0, State(), {}
        for update in updates:
            weight = float(update.examples) if weighting == "examples" else 1.0
            total += weight
            if summed:  # all in one call: each lets other threads in, and is let in late
                sent = [update.state[name] for name in summed]
                torch._foreach_add_([*summed.values()], sent, alpha=weight)
            else:
                for name, tensor in update.state.items():
                    summed[name] = tensor.to(torch.float64, copy=True).mul_(weight)
                    types[name] = tensor.dtype
        return {name: tensor.div_(total).to(types[name]) for name, tensor in summed.items()}

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any,
        clients: int | None = None, participation: float = 1.0, seed: int = 0, **options: Any,
    ) -> Result:  # fmt: skip
        """Flower's own loop, for a ServerApp of anybody's: the rounds are those of `rounds`.

        Args:
            grid: Flower's way to the clients.
            initial_arrays: global weights before the first round.
            num_rounds: number of rounds.
            args: what Flower's `start` takes beside these.
            clients: number of clients, which it waits for; None: as many as there are, once none
                came for SETTLE seconds.
            participation: share of clients in a round's cohort, in (0, 1].
            seed: of the cohorts, and of what the server draws.
            options: what Flower's `start` takes beside these, by name.

        Returns:
            The global weights after the last round, and what was evaluated.

        Raises:
            InputError: a participation out of range.
            FederationError: a client is missing, failed, or sent no update.
        """
        if not 0 < participation <= 1:
            raise InputError(f"participation: {participation}, must be in (0, 1]")
        self.phase = Phase("main", 0, num_rounds, False, participation, seed, num_rounds)
        self.nodes = find_nodes(grid, clients)
        return super().start(grid, initial_arrays, num_rounds, *args, **options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Steps 1 and 2 of `rounds`, for Flower's own loop.

        Args:
            server_round: number of the round, from 1.
            arrays: the global weights.
            config: for the clients.
            grid: Flower's way to them.

        Returns:
            One message for each client of the cohort.
        """
        self._grid = grid
        self.nodes = self.nodes or find_nodes(grid)  # a wrapper has a `start` of its own
        cohort = draw_cohort(self.phase, server_round, len(self.nodes))
        orders, self._reader = self._open_round(server_round, arrays, cohort, config)
        return list(orders.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Steps 3 and 4 of `rounds`, for Flower's own loop: all replies come at once.

        Args:
            server_round: number of the round, from 1.
            replies: of the whole cohort.

        Returns:
            The new global weights, and no metrics; None where a watch stopped the federation.

        Raises:
            FederationError: a reply is missing, or holds no update that can be averaged.
        """
        reader, self._reader = self._reader, None
        assert reader is not None and self._grid is not None
        if extras_of(self._grid).stopped:
            return None, None
        metrics = self._aggregate_updates(read_replies(self._grid, replies, reader))
        FailurePolicy(len(self.nodes), least=self.least).require_updates(server_round, len(metrics))
        return record(self._global), MetricRecord()

    def _aggregate_updates(
        self, updates: Iterable[Update], observe: UpdateObserver = ignore_update
    ) -> dict[int, Metrics]:
        """Aggregate the updates that rest on images; metrics of all of them, by client."""
        metrics = dict[int, Metrics]()

        def trained() -> Iterator[Update]:
            for update in updates:
                metrics[update.client] = update.metrics
                observe(update)
                if update.examples:
                    yield update

        updates_on_images = trained()
        if (first := next(updates_on_images, None)) is not None:
            self._global |= self.aggregate(
                self._global, itertools.chain([first], updates_on_images)
            )
        for _ in updates_on_images:  # of a strategy that wanted no more
            pass
        return metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Flower's hook: clients evaluate nothing, as probes and attacks read snapshots."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Flower's hook: clients evaluate nothing."""
        return None

    def summary(self) -> None:
        """Flower's hook; prints nothing."""
        return None


def find_nodes(grid: Grid, clients: int | None = None) -> dict[int, int]:
    """The node of each client: as a grid of our own knows it, else by a roll call.

    Args:
        clients: number of clients; None: as many as there are.

    Returns:
        Flower node id by partition id.
    """
    own = extras_of(grid).client_nodes()
    return call_roll(grid, clients) if own is None else own


def call_roll(grid: Grid, clients: int | None = None, patience: float = 120.0) -> dict[int, int]:
    """Ask every node once which client it is. Nodes of another app, which answer no such query, are
    numbered by their ids.

    Args:
        clients: number of clients; None: as many as there are.
        patience: seconds to wait for the nodes.

    Returns:
        The node of each client.

    Raises:
        FederationError: fewer nodes than clients after `patience` seconds.
    """
    ids = wait_for_nodes(grid, clients, patience)
    queries = [Message(RecordDict(), dst_node_id=i, message_type=MessageType.QUERY) for i in ids]
    nodes, replies = {}, list(grid.send_and_receive(queries))
    if all(reply.has_error() for reply in replies):  # of clients that failed round 1 says why
        return dict(enumerate(sorted(ids)))
    for reply in replies:
        if reply.has_error():
            raise FederationError(f"a client failed the roll call: {reply.error.reason}")
        client = reply.content["metrics"]["client"]
        nodes[int(client)] = reply.metadata.src_node_id  # type: ignore[arg-type]
    count = clients or len(ids)
    if sorted(nodes) != list(range(count)):
        raise FederationError(f"roll call: clients {sorted(nodes)}, expected 0..{count - 1}")
    return nodes


def wait_for_nodes(grid: Grid, clients: int | None = None, patience: float = 120.0) -> list[int]:
    """Wait until as many nodes are connected as there are clients.

    Args:
        clients: number of clients; None: until there is one, and none came for SETTLE seconds.
        patience: seconds to wait for the nodes.

    Returns:
        Node ids.

    Raises:
        FederationError: fewer after `patience` seconds.
    """
    deadline, before = time.monotonic() + patience, 0
    while True:
        ids = list(grid.get_node_ids())
        if len(ids) >= clients if clients else 0 < len(ids) == before:
            return ids
        if time.monotonic() > deadline:
            raise FederationError(f"{len(ids)} of {clients or 'at least 1'} clients connected")
        before = len(ids)  # nodes of a simulation come one after the other
        time.sleep(0.1 if clients else SETTLE)
