"""What strategies ask of clients, and what a client keeps between rounds, through its desk."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clients.active import Active
from clients.client_context import ClientContext, RoundTask
from clients.client_round import ClientRound
from clients.honest import Honest
from fedmia.attacks.ascent import Ascent, AscentAlgorithm1
from fedmia.attacks.ascent_static import attack_losses
from fedmia.options.seeding import rng
from fedmia.ssl.base import State
from fedmia.ssl.train import Train, draw_two_views
from fedmia.storage.snapshot import ClientState, MemoryStore, StrategyContext
from fedmia.threat.whitebox import split_in_halves
from strategies.fedema import FedEMA


def exactly(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


@pytest.fixture
def client_context(tmp_path: Path, images: torch.Tensor) -> ClientContext:
    """Three clients of six images each."""
    np.save(tmp_path / "images.npy", images.numpy())
    parts = tuple(np.arange(6 * c, 6 * c + 6) for c in range(3))
    return ClientContext(
        seed=0, images_file=tmp_path / "images.npy", roles=("honest",) * 3,
        parts={"members": parts}, targets=np.arange(0), held=np.arange(0),
        known=(np.arange(0), np.arange(0)),
        model=("smallnet", {"width": 2}),
        ssl=("moco", {"dim": 4, "queue": 4}), strategy=("fedavg", {}),
        train=Train(local_epochs=1, batch_size=2, lr=0.05),
        public=np.arange(0), defenses=(), attack=None, sets=(), turns=1, share=1.0,
        attacked_rate="schedule", attacker_trains=True,
        batch_norm="average", channels=3, size=8, mean=(0.5,) * 3, std=(0.25,) * 3,
        total_rounds=4, device="cpu", threads=1,
    )  # fmt: skip


def client_round(
    client_context: ClientContext, store: MemoryStore, received: State, round: int,
    name: str = "fedavg",
    **options: Any,
) -> ClientRound:  # fmt: skip
    """Client 0 in a round under the strategy `name`."""
    context = replace(client_context, strategy=(name, options))
    return ClientRound(context, store, RoundTask(0, round, "main", False), received)


def sent(at: ClientRound) -> State:
    """A whole round of an honest client."""
    return Honest().answer(at).state


def distance(a: State, b: State) -> float:
    return math.sqrt(sum(float(((a[n] - b[n]).double() ** 2).sum()) for n in a))


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.0])
def test_fedema__start_of_a_round_by_the_formula(client_context: ClientContext, tau: float) -> None:
    store, first = MemoryStore(), client_context.method(-1, None).shared_state()
    own = sent(client_round(client_context, store, first, 1, "fedema", tau=tau))
    plain = sent(client_round(client_context, MemoryStore(), first, 1))
    assert exactly(own, plain)  # nothing of its own to mix in yet

    scale = None
    for round, shift in ((2, 0.05), (3, 0.02), (4, 0.5)):
        received = {n: t + shift for n, t in own.items()}
        client_state = store.load("main", 0)
        assert client_state is not None
        mine = {n[9:]: t for n, t in client_state.tensors.items() if n.startswith("strategy.")}
        assert exactly(mine, own)
        gap = distance(own, received)
        scale = tau / gap if scale is None else scale  # lambda, fixed in the second round
        mu = min(1.0, scale * gap)
        start = FedEMA(tau=tau).begin(
            StrategyContext(received, {}, mine, dict(client_state.memory), {})
        )
        for name in received:
            want = mu * own[name] + (1 - mu) * received[name]
            torch.testing.assert_close(start[name], want, atol=1e-6, rtol=1e-5)
        if round == 2:
            assert mu == pytest.approx(tau)
        own = sent(client_round(client_context, store, received, round, "fedema", tau=tau))
    client_state = store.load("main", 0)
    assert client_state is not None and client_state.memory["ema_mu"] == pytest.approx(
        min(1.0, mu), rel=1e-4
    )


def test_fedprox__mu_reaches_the_steps_and_0_is_fedavg(client_context: ClientContext) -> None:
    first = client_context.method(-1, None).shared_state()
    ends = {
        mu: sent(client_round(client_context, MemoryStore(), first, 1, "fedprox", mu=mu))
        for mu in (0.0, 0.5, 5.0)
    }
    assert exactly(sent(client_round(client_context, MemoryStore(), first, 1)), ends[0.0])
    assert distance(ends[0.0], first) > distance(ends[0.5], first) > distance(ends[5.0], first)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_scaffold__reach_counts_what_momentum_makes_of_a_step(
    client_context: ClientContext, momentum: float
) -> None:
    """W is how far a gradient of 1 in each of K steps moves a weight in the end, and the control
    what was sent over W: Algorithm 1 at momentum 0, so many times a step under momentum."""
    train = replace(client_context.train, momentum=momentum, schedule="constant")
    store, first = MemoryStore(), client_context.method(-1, None).shared_state()
    at = client_round(replace(client_context, train=train), store, first, 1, "scaffold")
    update = Honest().answer(at)
    want = 3 * 0.05 / (1 - momentum)  # six images, two a step
    assert update.metrics["scaffold_reach"] == pytest.approx(want)
    client_state = store.load("main", 0)
    assert client_state is not None
    for name in dict(at.client_context.method(-1, None).encoder.named_parameters()):
        slope = (first[name] - update.state[name]) / want
        torch.testing.assert_close(client_state.tensors[f"strategy.{name}"], slope)


def test_desk__resumes_queue_key_encoder_and_momentum(client_context: ClientContext) -> None:
    store, first = MemoryStore(), client_context.method(-1, None).shared_state()
    at = client_round(client_context, store, first, 1)
    trained, metrics, method = at.train()
    assert store.load("main", 0) is None  # until the upload is settled
    at.finish_round(trained, metrics)
    client_state = store.load("main", 0)
    assert client_state is not None
    assert torch.equal(client_state.tensors["local.queue"], method.local_state()["queue"])
    assert any(n.startswith("optimizer.") for n in client_state.tensors)
    assert not any(n.startswith(("strategy.", "running.")) for n in client_state.tensors)
    onward, _, _ = client_round(client_context, store, trained, 2).train()
    fresh, _, _ = client_round(client_context, MemoryStore(), trained, 2).train()
    assert not exactly(onward, fresh)
    again = MemoryStore()
    again.save("main", 0, ClientState(dict(client_state.tensors), {}))
    assert exactly(client_round(client_context, again, trained, 2).train()[0], onward)


@pytest.mark.parametrize("knows", [False, True])
def test_two_malicious_clients__send_the_same_where_they_know_the_server(
    client_context: ClientContext, knows: bool
) -> None:
    """And else each what it climbs to by itself."""
    attack = Ascent(steps=1, lr=0.05, server="known" if knows else "unknown")
    held = {"targets": np.arange(6), "held": np.arange(6, 18), "attack": attack}
    context = replace(client_context, roles=("honest", "active", "active"), share=1 / 3, **held)
    assert context.fellows == ((1, 2) if knows else (1,))
    first, store, sent = client_context.method(-1, None).shared_state(), MemoryStore(), []
    for client in (1, 2):
        for craft in (False, True):
            at = ClientRound(context, store, RoundTask(client, 1 + craft, "main", craft), first)
            state = Active().answer(at).state
        sent.append(state)
    assert exactly(*sent) == knows
    turns = context.craft_context(
        client_context.method(-1, None), first, first, 0, {}, np.random.default_rng(0)
    )
    assert turns.share == pytest.approx(2 / 3 if knows else 1 / 3)


@pytest.mark.parametrize("name", ["krum", "trimmed-mean", "norm-clip"])
def test_passing__rests_on_the_attackers_own_images(
    client_context: ClientContext, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains on them to guess what honest clients send, where the rule compares updates."""
    calls, job = list[set[int]](), ClientRound._make_job

    def noted(self: ClientRound, indices: Any, *more: Any, **rest: Any) -> Any:
        calls.append(set(indices.tolist()))
        return job(self, indices, *more, **rest)

    monkeypatch.setattr(ClientRound, "_make_job", noted)
    attack = Ascent(steps=2, lr=0.5, server="known")
    held = {"targets": np.arange(6), "held": np.arange(6, 18), "attack": attack}
    context = replace(
        client_context,
        roles=("honest", "honest", "active"),
        share=1 / 5,
        strategy=(name, {}),
        **held,
    )
    first, store = client_context.method(-1, None).shared_state(), MemoryStore()
    at = ClientRound(context, store, RoundTask(2, 1, "main", True), first)
    crafted = Active().answer(at).state
    assert len(calls) == (0 if name == "norm-clip" else 4)
    assert all(images <= set(range(12, 18)) for images in calls)
    if name == "norm-clip":
        assert distance(crafted, first) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("share", "malicious", "sizes"),
    [(1 / 5, 1, [1, 3, 4, 6]), (1 / 5, 2, [2, 4, 6]), (1 / 40, 1, [1, 1, 2, 3, 3, 4, 5, 6]),
     (1.0, 1, [3, 6])],
)  # fmt: skip
def test_guesses__one_for_each_honest_client_from_few_images_to_all(
    client_context: ClientContext,
    share: float,
    malicious: int,
    sizes: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the first attacker's images, eight at most, once a round; each fellow guesses the same."""
    draws = list[list[int]]()
    monkeypatch.setattr(
        ClientRound,
        "_guess_upload",
        lambda self, indices: draws.append(indices.tolist()) or self.received,
    )
    attack = Ascent(steps=1, lr=0.5, server="known")
    roles = ("honest",) * (3 - malicious) + ("active",) * malicious
    context = replace(
        client_context, roles=roles, share=share, strategy=("krum", {}), attack=attack
    )
    first, store, ways = client_context.method(-1, None).shared_state(), MemoryStore(), []
    for client in context.fellows:
        at = ClientRound(context, store, RoundTask(client, 4, "main", True), first)
        at._nearest_passing(first)
        at._nearest_passing(first)
        ways.append(draws.copy())
        draws.clear()
    assert [len(one) for one in ways[0]] == sizes and all(way == ways[0] for way in ways)
    own = set(client_context.parts["members"][context.fellows[0]].tolist())
    assert all(set(one) <= own for one in ways[0])


def test_settle__what_is_not_finite_is_not_kept(client_context: ClientContext) -> None:
    """The client goes on from where it was, and its defences' memory from where it is."""
    first, store, bad = (
        client_context.method(-1, None).shared_state(),
        MemoryStore(),
        torch.tensor([math.nan]),
    )
    for round in (1, 2):
        at = client_round(client_context, store, first, round)
        trained, metrics, _ = at.train()
        at.memory["rounds"] = round
        before = store.load("main", 0)
        if round == 2:
            assert at._trained is not None
            at._trained[2]["local.queue"] = bad
        update = at.finish_round(trained, metrics)
        assert update.examples == 6
        after = store.load("main", 0)
    assert before is not None and after is not None and before.memory != after.memory
    assert exactly(after.tensors, before.tensors) and after.memory["rounds"] == 2


def test_settle__without_training_nothing_is_kept_and_no_image_counts(
    client_context: ClientContext,
) -> None:
    store, first = MemoryStore(), client_context.method(-1, None).shared_state()
    update = client_round(client_context, store, first, 3).finish_round(first, {})
    assert (update.client, update.round, update.examples) == (0, 3, 0)
    assert store.load("main", 0) is None and exactly(update.state, first)


@pytest.mark.parametrize("attacked", [False, True])
@pytest.mark.parametrize("rate", ["schedule", "constant"])
def test_job__stands_where_the_round_is_in_the_run(
    client_context: ClientContext, rate: str, attacked: bool
) -> None:
    """Two epochs of three steps a round, the third of four rounds; `constant` is the first rate, in
    attacked rounds alone."""
    train = replace(client_context.train, local_epochs=2, batch_size=2, warmup_epochs=1.0)
    context = replace(client_context, train=train, attacked_rate=rate)
    method = context.method(0, 5)
    job = context.job(method, context.images[np.arange(5)], 3, np.random.default_rng(0), attacked)
    assert (job.step, job.total_steps, len(job.images)) == (12, 24, 5)
    own = attacked and rate == "constant"
    assert job.train == (
        replace(train, schedule="constant", warmup_epochs=0.0, lr=0.05) if own else train
    )
    assert (
        client_context.branch_parts("zero")
        is client_context.branch_parts("main")
        is client_context.parts["members"]
    )


@pytest.mark.parametrize(
    ("schedule", "attacked_rate", "rate"),
    [
        ("constant", "schedule", 0.05),
        ("cosine", "schedule", 0.025 * (1 + math.cos(math.pi * 2 / 4))),  # two of four are over
        ("cosine", "constant", 0.05),
    ],
)
def test_matched__climbs_as_honest_clients_train(
    client_context: ClientContext, schedule: str, attacked_rate: str, rate: float
) -> None:
    """Three steps for three local epochs, by SGD with momentum and decay, at the rate with which
    honest clients begin the third round."""
    train = replace(
        client_context.train, local_epochs=3, momentum=0.8, weight_decay=0.3, schedule=schedule
    )
    attack = AscentAlgorithm1(batch=6)
    context = replace(
        client_context, train=train, attacked_rate=attacked_rate, attack=attack,
        targets=np.arange(6),
        held=np.arange(6, 18), roles=("honest", "honest", "active"),
    )  # fmt: skip
    first = context.method(-1, None).shared_state()
    at = ClientRound(context, MemoryStore(), RoundTask(2, 3, "main", True), first)
    crafted = at.craft(at.idle(), first)

    method, stream = at.idle(), rng(0, "craft", 3, 2)
    halves, _ = split_in_halves(context.take(context.held))
    method.fill_bank(halves[1])  # no target is held
    weights = list(method.encoder.parameters())
    sgd = torch.optim.SGD(weights, lr=rate, momentum=0.8, weight_decay=0.3)
    for _ in range(3):
        rows = stream.permutation(6)
        view1, view2 = draw_two_views(context.take(rows), context.augment, stream)
        sgd.zero_grad()
        (-attack_losses(method, view1, view2, "algorithm1").mean()).backward()
        sgd.step()
    for name, tensor in method.shared_state().items():
        torch.testing.assert_close(crafted[name], tensor, atol=1e-6, rtol=1e-4)
    assert distance(crafted, first) > 0.01


@pytest.mark.parametrize("keep", ["keep", "reset"])
def test_resumed__momentum_where_it_is_kept_and_statistics_that_stay(
    client_context: ClientContext, keep: str
) -> None:
    """Local batch norm's running statistics go on from the client's own, not from the server's."""
    context = replace(
        client_context, batch_norm="local", model=("smallnet", {"width": 2, "norm": "batch"}),
        train=replace(client_context.train, optimizer_state=keep),
    )  # fmt: skip
    store, first = MemoryStore(), context.method(-1, None).shared_state()
    update = Honest().answer(client_round(context, store, first, 1))
    client_state = store.load("main", 0)
    assert client_state is not None and not [n for n in update.state if ".running_" in n]
    assert any(n.startswith("optimizer.") for n in client_state.tensors) == (keep == "keep")
    running = {
        n[8:]: t.clone() for n, t in client_state.tensors.items() if n.startswith("running.")
    }
    assert running and set(running) == {n for n in first if ".running_" in n}
    at = client_round(context, store, first, 2)
    method = context.method(0, 6)
    method.load_shared(first)
    at._restore_state(method, at._make_job(at.indices, {}, {})[0].optimizer)
    now = method.shared_state()
    assert all(torch.equal(now[n], t) for n, t in running.items())
