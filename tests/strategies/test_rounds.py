"""Every strategy through its rounds, with clients that echo and clients that misbehave."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmia import registry
from fedmia.errors import said
from fedmia.federation.backends import InlineGrid
from fedmia.federation.snapshot import Update
from fedmia.seeding import rng
from fedmia.ssl.base import State
from strategies.base import (
    Course,
    FederatedStrategy,
    FederationError,
    call_roll,
    check_finite,
    cohort,
)
from strategies.fedavg import FedAvg

NAMES = registry.names("strategy")
Reply = Callable[[int, int, State], State]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Flower narrates every round."""
    log = logging.getLogger("flwr")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


def some_state(seed: int, scale: float = 1.0) -> State:
    draw = np.random.default_rng(seed)
    return {
        "head.weight": torch.from_numpy(draw.normal(size=(3, 4)) * scale).float(),
        "bias": torch.from_numpy(draw.normal(size=5) * scale).float(),
    }


def updates(count: int, round: int = 1) -> list[Update]:
    return [Update(c, round, some_state(c + 10 * round), 3 + 2 * c, {}) for c in range(count)]


def exactly(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


class Shuffled(InlineGrid):
    """Replies come back in another order."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        order = rng(0, "arrival", len(replies)).permutation(len(replies))
        return [replies[i] for i in order]


class Lossy(InlineGrid):
    """The reply of client 1 to an order never arrives."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        return [r for r in replies if "num-examples" not in r.content["metrics"]
                or r.content["metrics"]["client"] != 1]  # fmt: skip


class Failing(InlineGrid):
    """The order to client 1 comes back as Flower's error message."""

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if "arrays" in message.content and self._contexts[node].node_config["partition-id"] == 1:
            return Message(Error(code=0, reason="out of memory"), reply_to=message)
        return super()._answer(message)


def echo(reply: Reply) -> ClientApp:
    app = ClientApp()

    @app.query()
    def roll_call(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"client": int(context.node_config["partition-id"])})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        order: Any = message.content
        state = order["arrays"].to_torch_state_dict()
        state = reply(client, int(order["config"]["round"]), state)
        metrics = MetricRecord({"client": client, "num-examples": 2 + client, "loss": 1.0 + client})
        content = RecordDict({"arrays": ArrayRecord(torch_state_dict=state), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def drift(client: int, round: int, state: State) -> State:
    return {n: 0.9 * t + some_state(client + 7 * round)[n] for n, t in state.items()}


Seen = list[tuple[int, State, list[Update]]]


def federate(
    strategy: FederatedStrategy, grid_type: type[InlineGrid] = InlineGrid, reply: Reply = drift,
    clients: int = 4, rounds: int = 3, share: float = 1.0, first: int = 5,
) -> tuple[State, Seen]:  # fmt: skip
    grid = grid_type(echo(reply), clients, 2, 1)
    seen: Seen = []
    try:
        course = Course("main", first, first + rounds, False, share, 0)
        for done in strategy.rounds(grid, course, some_state(99), clients):
            assert done.seconds >= 0
            seen.append((done.number, {n: t.clone() for n, t in done.state.items()}, done.updates))
    finally:
        grid.close()
    return done.state, seen


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__flowers_own_loop_gives_the_same(name: str) -> None:
    end, _ = federate(registry.build("strategy", name, {}))
    strategy = registry.build("strategy", name, {})
    strategy.course = Course("main", 5, 8, False, 1.0, 0)
    grid = InlineGrid(echo(drift), 4, 2, 1)
    try:
        strategy.nodes = call_roll(grid, 4)
        initial = ArrayRecord(torch_state_dict=some_state(99))
        result = strategy.start(grid, initial, num_rounds=3)
    finally:
        grid.close()
    assert result.arrays is not None
    assert exactly(dict(result.arrays.to_torch_state_dict()), end)


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__runs_the_course_it_was_given(name: str) -> None:
    end, seen = federate(registry.build("strategy", name, {}))
    assert [round for round, _, _ in seen] == [6, 7, 8]
    assert exactly(seen[-1][1], end)
    for round, state, ups in seen:
        assert [(u.client, u.round, u.examples) for u in ups] == [
            (c, round, 2 + c) for c in range(4)
        ]
        assert [u.metrics for u in ups] == [{"loss": 1.0 + c} for c in range(4)]
        assert all(bool(t.isfinite().all()) for t in state.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__aggregates_what_the_clients_sent(name: str) -> None:
    """The loop adds nothing: the same aggregation, round by round, without it."""
    end, seen = federate(registry.build("strategy", name, {}))
    alone, state = registry.build("strategy", name, {}), some_state(99)
    for _, _, ups in seen:
        state = state | alone.aggregate(state, ups)
    assert exactly(state, end)


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__order_of_arrival_changes_no_bit(name: str, weighting: str) -> None:
    ends = [
        federate(registry.build("strategy", name, {"weighting": weighting}), grid, clients=7)[0]
        for grid in (InlineGrid, Shuffled)
    ]
    assert exactly(*ends)


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__only_the_cohort_trains(name: str) -> None:
    _, seen = federate(registry.build("strategy", name, {}), clients=5, share=0.4, rounds=4)
    for round, _, ups in seen:
        course = Course("main", 5, 9, False, 0.4, 0)
        assert [u.client for u in ups] == cohort(course, round, 5)
    assert len({tuple(u.client for u in ups) for _, _, ups in seen}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__forks_by_pickle(name: str) -> None:
    """A control branch goes on from a copy of the strategy, with its memory and apart from it."""
    one = registry.build("strategy", name, {})
    one.aggregate(some_state(99), updates(3, 1))
    fork = pickle.loads(pickle.dumps(one))
    want = one.aggregate(some_state(98), updates(3, 2))
    assert exactly(fork.aggregate(some_state(98), updates(3, 2)), want)


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__leaves_its_inputs_alone(name: str) -> None:
    G, ups = some_state(99), updates(3)
    strategy = registry.build("strategy", name, {})
    out = strategy.aggregate(G, ups)
    for tensor in out.values():
        tensor.zero_()
    assert exactly(G, some_state(99))
    assert all(exactly(u.state, v.state) for u, v in zip(ups, updates(3), strict=True))


def test_start__names_that_no_client_sends_keep_their_value() -> None:
    """Batch norm's running statistics under the policy `local`."""
    end, _ = federate(
        FedAvg(), reply=lambda c, r, s: {"bias": s["bias"] + 1.0}, clients=2, rounds=2
    )
    assert torch.equal(end["head.weight"], some_state(99)["head.weight"])
    torch.testing.assert_close(end["bias"], some_state(99)["bias"] + 2)


def spoiled(how: str) -> Reply:
    def reply(client: int, round: int, state: State) -> State:
        if (client, round) != (2, 7):
            return state
        bad = {n: t.clone() for n, t in state.items()}
        if how in ("nan", "inf"):
            bad["bias"][3] = float(how)
        elif how == "shape":
            bad["bias"] = torch.zeros(4)
        elif how == "name":
            bad["stranger"] = torch.zeros(1)
        elif how == "lack":
            del bad["bias"]
        return bad

    return reply


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("nan", "round 7: client 2 sent a 'bias' that is not finite"),
        ("inf", "round 7: client 2 sent a 'bias' that is not finite"),
        ("shape", "round 7: client 2 sent a 'bias'.*of another shape"),
        ("name", "client 2 sent unknown.*stranger"),
        ("lack", "round 7: clients 0 and 2 sent different tensors: .*bias"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__a_spoiled_update_names_its_client(
    name: str, how: str, message: str
) -> None:
    with pytest.raises(FederationError, match=message) as raised:
        federate(registry.build("strategy", name, {}), reply=spoiled(how))
    flags = said(str(raised.value), lambda path, value: f"--{path}")
    assert ("a lower --train.lr or a milder attack" in flags) == (how in ("nan", "inf", "shape"))


def test_missing_reply__names_its_client() -> None:
    with pytest.raises(FederationError, match=r"round 6: no reply from clients \[1\]"):
        federate(FedAvg(), Lossy)


def test_error_reply__names_its_client() -> None:
    with pytest.raises(FederationError, match="round 6: client 1 failed: out of memory"):
        federate(FedAvg(), Failing)


def test_check_finite__passes_what_is_sound() -> None:
    check_finite(updates(3), some_state(0))


def test_call_roll__maps_partitions_to_nodes() -> None:
    grid = Shuffled(echo(drift), 5, 2, 1)
    try:
        nodes = call_roll(grid, 5)
        assert {c: grid._contexts[n].node_config["partition-id"] for c, n in nodes.items()} == {
            c: c for c in range(5)
        }
        with pytest.raises(FederationError, match="5 of 6 clients connected"):
            call_roll(grid, 6, patience=0.0)
    finally:
        grid.close()
