"""The template of every strategy: what its server does in a round, and what its clients do."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedmia.errors import opt
from fedmia.federation.snapshot import Local, Update
from fedmia.seeding import rng
from fedmia.settings.option import Options, option
from fedmia.ssl.base import State

PATIENCE = 3600.0  # seconds in which every client answers an order


class FederationError(RuntimeError):
    """A client failed or answered with something that cannot be averaged; the run stops."""


@dataclass(frozen=True)
class Course:
    """A stretch of rounds of one branch.

    Attributes:
        branch: `main`, `zero` or `placebo`; clients keep their state by branch.
        first: rounds already behind; the stretch runs first + 1 .. last.
        craft: whether the active attacker may craft.
        participation: share of clients in a round's cohort, in (0, 1].
        seed: of the cohorts.
    """

    branch: str
    first: int
    last: int
    craft: bool
    participation: float
    seed: int


@dataclass(frozen=True)
class Round:
    """A round that is done: its new global weights, the updates sorted by client, its seconds."""

    number: int
    state: State
    updates: list[Update]
    seconds: float


@dataclass
class FederatedStrategy(Options, Strategy):
    """A strategy as options: the server's half and the client's half of one method.

    Subclasses are dataclasses, one a file, and say `aggregate`; every other method is the identity
    by default. The client's half runs on an instance of each client's own, built anew each round:
    what must last goes into `Local.kept` and `Local.memory`.
    """

    paper: ClassVar[str] = ""

    weighting: str = option(
        "uniform",
        "weight of a client's update: equal, or by its number of images",
        choices=("uniform", "examples"),
    )
    course: Course | None = field(default=None, init=False, repr=False)
    nodes: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _global: State = field(default_factory=dict, init=False, repr=False)
    _updates: list[Update] = field(default_factory=list, init=False, repr=False)

    # -- the server's half ---------------------------------------------------------------------

    @abstractmethod
    def aggregate(self, received: State, updates: list[Update]) -> State:
        """New global weights from the round's first ones and the updates, sorted by client."""

    def broadcast(self) -> State:
        """What every client of the coming round receives beside the weights."""
        return {}

    # -- the client's half ---------------------------------------------------------------------

    def begin(self, local: Local) -> State:
        """The weights that local training starts from."""
        return local.received

    def after_backward(self, local: Local) -> None:
        """Change the gradients of `local.weights` in place, before each step of the optimizer.

        Under DP-SGD they are clipped and noised by then, so what is added here costs no privacy as
        long as it rests on what the client has received and sent alone.
        """
        return None

    def finish(self, local: Local, trained: State, sent: State) -> dict[str, float]:
        """Keep what the next round needs; metrics that travel with the upload.

        Args:
            trained: the weights after training. sent: those that leave the client, after its
                defence; of an active attacker what it crafted.
        """
        return {}

    # -- the rounds ----------------------------------------------------------------------------

    def rounds(self, grid: Grid, course: Course, state: State, clients: int) -> Iterator[Round]:
        """The rounds of `course` from `state`, each as it is done, after a roll call of the nodes.

        Raises:
            FederationError: a client does not answer, or answers what cannot be averaged.
        """
        self.course, self.nodes = course, self.nodes or call_roll(grid, clients)
        arrays = ArrayRecord(torch_state_dict=state)
        for turn in range(1, course.last - course.first + 1):
            began = time.perf_counter()
            orders = self.configure_train(turn, arrays, ConfigRecord(), grid)
            arrays, _ = self.aggregate_train(turn, grid.send_and_receive(orders, timeout=PATIENCE))
            updates, self._updates = self._updates, []
            seconds = time.perf_counter() - began
            yield Round(course.first + turn, self._global, updates, seconds)

    def mean(self, updates: list[Update]) -> State:
        """Weighted mean of the updates, summed in float64 in the order of partition ids."""
        weights = [float(u.examples) if self.weighting == "examples" else 1.0 for u in updates]
        total = sum(weights)
        merged = {}
        for name, first in updates[0].state.items():
            summed = torch.zeros_like(first, dtype=torch.float64)
            for weight, update in zip(weights, updates, strict=True):
                summed += update.state[name].double() * (weight / total)
            merged[name] = summed.to(first.dtype)
        return merged

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        assert self.course is not None
        course, round = self.course, self.course.first + server_round
        self._global = arrays.to_torch_state_dict()
        told = ConfigRecord({"round": round, "craft": course.craft, "branch": course.branch})
        content = RecordDict({"arrays": arrays, "config": told})
        if sent := self.broadcast():
            content["broadcast"] = ArrayRecord(torch_state_dict=sent)
        return [
            Message(content, dst_node_id=self.nodes[c], message_type=MessageType.TRAIN)
            for c in cohort(course, round, len(self.nodes))
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        assert self.course is not None
        course, round = self.course, self.course.first + server_round
        names = {node: client for client, node in self.nodes.items()}
        updates = sorted((_update(m, round, names) for m in replies), key=lambda u: u.client)
        expected = cohort(course, round, len(self.nodes))
        if [u.client for u in updates] != expected:
            silent = sorted(set(expected) - {u.client for u in updates})
            raise FederationError(f"round {round}: no reply from clients {silent}")
        check_finite(updates, self._global)
        if trained := [u for u in updates if u.examples]:
            self._global |= self.aggregate(self._global, trained)
        self._updates = updates
        return ArrayRecord(torch_state_dict=self._global), MetricRecord()

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
    ids = connected(grid, clients, patience)
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


def connected(grid: Grid, clients: int, patience: float = 120.0) -> list[int]:
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


def cohort(course: Course, round: int, clients: int) -> list[int]:
    """Sorted partition ids that take part in `round`: a seeded draw without replacement."""
    size = max(1, int(course.participation * clients + 0.5))
    if size >= clients:
        return list(range(clients))
    drawn = rng(course.seed, "cohort", round).choice(clients, size, replace=False)
    return sorted(int(c) for c in drawn)


def check_finite(updates: list[Update], received: State) -> None:
    """Refuse updates with other names or shapes than the model's, or values not finite.

    Raises:
        FederationError: naming client, round and tensor.
    """
    for update in updates:
        unknown = set(update.state) - set(received)
        if unknown:
            raise FederationError(f"client {update.client} sent unknown {sorted(unknown)[:3]}")
        if set(update.state) != set(updates[0].state):
            odd = sorted(set(update.state) ^ set(updates[0].state))[:3]
            raise FederationError(
                f"round {update.round}: clients {updates[0].client} and {update.client} sent "
                f"different tensors: {odd}"
            )
        for name, tensor in update.state.items():
            if tensor.shape != received[name].shape or not bool(tensor.isfinite().all()):
                raise FederationError(
                    f"round {update.round}: client {update.client} sent a '{name}' that is not "
                    f"finite or of another shape; a lower {opt('train.lr')} or a milder attack "
                    "helps if training diverged"
                )


def _update(message: Message, round: int, names: dict[int, int]) -> Update:
    if message.has_error():
        client = names.get(message.metadata.src_node_id, "?")
        raise FederationError(f"round {round}: client {client} failed: {message.error.reason}")
    values = {k: float(v) for k, v in message.content["metrics"].items()}  # type: ignore[arg-type]
    client, examples = int(values.pop("client")), int(values.pop("num-examples"))
    state = message.content["arrays"].to_torch_state_dict()  # type: ignore[union-attr]
    return Update(client, round, state, examples, values)
