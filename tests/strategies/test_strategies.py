"""Strategies against numpy, through Flower's own loop, and with clients that misbehave."""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.base import Desk, Site, Task
from fedmia import registry
from fedmia.backends import InlineGrid
from fedmia.seeding import rng
from fedmia.snapshot import LocalState, MemoryStore, Update
from fedmia.ssl.base import State
from fedmia.ssl.train import Train
from strategies.base import (
    Course,
    FederatedStrategy,
    FederationError,
    call_roll,
    check_finite,
    cohort,
)
from strategies.fedavg import FedAvg
from strategies.fedavgm import FedAvgM
from strategies.fedema import FedEMA
from strategies.fedprox import FedProx

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


# -- the formulas, as numpy writes them


def numpy_mean(ups: list[Update], name: str, weighting: str) -> np.ndarray[Any, Any]:
    rows = np.stack([u.state[name].numpy() for u in ups]).astype(np.float64)
    weights = [u.examples if weighting == "examples" else 1 for u in ups]
    return np.asarray(np.average(rows, axis=0, weights=weights))


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("eta", [0.3, 1.0, 1.7])
def test_fedavg__equation_2(eta: float, weighting: str) -> None:
    G, ups = some_state(99), updates(4)
    got = FedAvg(server_lr=eta, weighting=weighting).aggregate(G, ups)
    for name in G:
        want = (1 - eta) * G[name].numpy().astype(np.float64)
        want = want + eta * numpy_mean(ups, name, weighting)
        np.testing.assert_allclose(got[name], want.astype(np.float32), rtol=1e-6, atol=1e-7)
        assert got[name].dtype == torch.float32


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedema"])
def test_fedavg__of_one_client_at_eta_1_is_its_update(name: str) -> None:
    """What makes one client the plain loop. Weights of very different size, where
    G + (L - G) would differ from L."""
    for seed in range(20):
        G, L = some_state(seed, scale=1.0), some_state(seed + 50, scale=1e-3)
        for weighting in ("uniform", "examples"):
            strategy = registry.build("strategy", name, {"weighting": weighting})
            assert exactly(strategy.aggregate(G, [Update(0, 1, L, 7, {})]), L)
    assert any(not torch.equal(G[n] + (L[n] - G[n]), L[n]) for n in G)


def test_fedavg__equal_updates_are_kept() -> None:
    L = some_state(1)
    ups = [Update(c, 1, L, 1 + c, {}) for c in range(7)]
    for weighting in ("uniform", "examples"):
        assert exactly(FedAvg(weighting=weighting).aggregate(some_state(2), ups), L)


@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_fedavgm__two_rounds(eta: float) -> None:
    beta = 0.8
    strategy = FedAvgM(server_lr=eta, beta=beta)
    G = some_state(99)
    second = strategy.aggregate(strategy.aggregate(G, updates(3, 1)), updates(3, 2))
    for name in G:
        g0 = G[name].numpy().astype(np.float64)
        v1 = g0 - numpy_mean(updates(3, 1), name, "uniform")
        g1 = g0 - eta * v1
        v2 = beta * v1 + (g1 - numpy_mean(updates(3, 2), name, "uniform"))
        np.testing.assert_allclose(second[name], g1 - eta * v2, rtol=1e-5, atol=1e-6)


def test_fedavgm__of_beta_0_is_fedavg() -> None:
    plain, momentum = FedAvg(server_lr=0.7), FedAvgM(server_lr=0.7, beta=0.0)
    G = some_state(99)
    for round in (1, 2):
        want, got = plain.aggregate(G, updates(3, round)), momentum.aggregate(G, updates(3, round))
        for name in want:
            torch.testing.assert_close(got[name], want[name], rtol=1e-6, atol=1e-7)
        G = want


def test_fedavgm__instances_do_not_share_velocity() -> None:
    one = FedAvgM()
    one.aggregate(some_state(99), updates(2))
    assert one.velocity and not FedAvgM().velocity


# -- what strategies ask of clients, through a desk


@pytest.fixture
def site(tmp_path: Path, images: torch.Tensor) -> Site:
    """Three clients of six images each."""
    np.save(tmp_path / "images.npy", images.numpy())
    parts = tuple(np.arange(6 * c, 6 * c + 6) for c in range(3))
    return Site(
        seed=0, images_file=tmp_path / "images.npy", roles=("honest",) * 3,
        parts={"members": parts}, targets=np.arange(0), model=("smallnet", {"width": 2}),
        ssl=("moco", {"dim": 4, "queue": 4}), train=Train(local_epochs=1, batch_size=2, lr=0.05),
        defense=None, defended=frozenset(), attack=None, attacker_trains=True,
        batch_norm="average", channels=3, size=8, mean=(0.5,) * 3, std=(0.25,) * 3,
        total_rounds=4, device="cpu", threads=1,
    )  # fmt: skip


def desk(site: Site, store: MemoryStore, received: State, round: int, **options: float) -> Desk:
    return Desk(site, store, Task(0, round, "main", "members", False, options), received)


def distance(a: State, b: State) -> float:
    return math.sqrt(sum(float(((a[n] - b[n]).double() ** 2).sum()) for n in a))


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.0])
def test_fedema__start_of_a_round_by_the_formula(site: Site, tau: float) -> None:
    asked = FedEMA(tau=tau).client_options()
    assert asked == {"ema_tau": tau}
    store, first = MemoryStore(), site.method(-1, None).shared_state()
    own, _, method = desk(site, store, first, 1, **asked).train()
    plain, _, _ = desk(site, MemoryStore(), first, 1).train()
    assert exactly(own, plain)  # nothing of its own to mix in yet

    scale = None
    for round, shift in ((2, 0.05), (3, 0.02), (4, 0.5)):
        received = {n: t + shift for n, t in own.items()}
        at = desk(site, store, received, round, **asked)
        gap = distance(own, received)
        scale = tau / gap if scale is None else scale  # lambda, fixed in the second round
        mu = min(1.0, scale * gap)
        start = at._start(method)
        for name in received:
            want = mu * own[name] + (1 - mu) * received[name]
            torch.testing.assert_close(start[name], want, atol=1e-6, rtol=1e-5)
        if round == 2:
            assert mu == pytest.approx(tau)
        own, _, _ = desk(site, store, received, round, **asked).train()
    kept = store.load("main", 0)
    assert kept is not None and kept.memory["ema_mu"] == pytest.approx(min(1.0, mu), rel=1e-4)


def test_fedprox__mu_reaches_the_job_and_0_is_fedavg(site: Site) -> None:
    assert FedProx(mu=0.3).client_options() == {"proximal_mu": 0.3}
    first = site.method(-1, None).shared_state()
    ends = {}
    for mu in (None, 0.0, 0.5, 5.0):
        options = {} if mu is None else FedProx(mu=mu).client_options()
        ends[mu] = desk(site, MemoryStore(), first, 1, **options).train()[0]
    assert exactly(ends[None], ends[0.0])
    assert distance(ends[0.0], first) > distance(ends[0.5], first) > distance(ends[5.0], first)


def test_desk__resumes_queue_key_encoder_and_momentum(site: Site) -> None:
    store, first = MemoryStore(), site.method(-1, None).shared_state()
    sent, _, method = desk(site, store, first, 1).train()
    kept = store.load("main", 0)
    assert kept is not None
    assert torch.equal(kept.tensors["local.queue"], method.local_state()["queue"])
    assert any(n.startswith("momentum.") for n in kept.tensors)
    assert not any(n.startswith("own.") for n in kept.tensors)  # only FedEMA needs them
    onward, _, _ = desk(site, store, sent, 2).train()
    fresh, _, _ = desk(site, MemoryStore(), sent, 2).train()
    assert not exactly(onward, fresh)
    again = MemoryStore()
    again.save("main", 0, LocalState(dict(kept.tensors), {}))
    assert exactly(desk(site, again, sent, 2).train()[0], onward)


# -- cohorts


@pytest.mark.parametrize(("clients", "share", "size"), [(10, 1.0, 10), (10, 0.25, 3), (3, 0.5, 2),
                                                        (10, 0.01, 1), (1, 0.3, 1)])  # fmt: skip
def test_cohort__is_seeded_sorted_and_of_the_size_asked(
    clients: int, share: float, size: int
) -> None:
    drawn = []
    for seed in (0, 1):
        for round in range(1, 9):
            course = Course("main", "members", 0, 8, False, share, seed)
            picked = cohort(course, round, clients)
            assert picked == sorted(set(picked)) and len(picked) == size
            assert set(picked) <= set(range(clients))
            other = Course("zero", "placebo", 4, 8, True, share, seed)
            assert cohort(other, round, clients) == picked  # branches are paired
            drawn.append(tuple(picked))
    if size < clients:
        assert len(set(drawn)) > 1
        assert {c for picked in drawn for c in picked} == set(range(clients)) or size == 1


# -- Flower's loop, with clients that echo


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

    def on_round(
        course: Course, round: int, state: State, ups: list[Update], seconds: float
    ) -> None:
        assert seconds >= 0
        seen.append((round, {n: t.clone() for n, t in state.items()}, ups))

    try:
        course = Course("main", "members", first, first + rounds, False, share, 0)
        strategy.follow(course, clients, on_round, grid)
        initial = ArrayRecord(torch_state_dict=some_state(99))
        result = strategy.start(grid, initial, num_rounds=rounds)
    finally:
        grid.close()
    assert result.arrays is not None
    return dict(result.arrays.to_torch_state_dict()), seen


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
    """Flower's loop adds nothing: the same aggregation, round by round, without it."""
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
        course = Course("main", "members", 5, 9, False, 0.4, 0)
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
        return bad

    return reply


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("nan", "round 7: client 2 sent a 'bias' that is not finite"),
        ("inf", "round 7: client 2 sent a 'bias' that is not finite"),
        ("shape", "round 7: client 2 sent a 'bias'.*of another shape"),
        ("name", "client 2 sent unknown.*stranger"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy__a_spoiled_update_names_its_client(
    name: str, how: str, message: str
) -> None:
    with pytest.raises(FederationError, match=message):
        federate(registry.build("strategy", name, {}), reply=spoiled(how))


def test_missing_reply__names_its_client() -> None:
    with pytest.raises(FederationError, match=r"round 6: no reply from clients \[1\]"):
        federate(FedAvg(), Lossy)


@pytest.mark.xfail(strict=True, reason="the message does not name the client yet")
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
