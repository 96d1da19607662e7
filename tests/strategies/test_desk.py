"""What strategies ask of clients, and what a client keeps between rounds, through its desk."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from clients.active import Active
from clients.client_round import ClientRound
from clients.client_setup import ClientSetup, ClientTask
from clients.honest import Honest
from fedmia.attacks.ascent import Ascent, AscentAlgorithm1
from fedmia.attacks.ascent_static import attack_losses
from fedmia.federation.ledger import Ledger
from fedmia.seeding import rng
from fedmia.ssl.base import State
from fedmia.ssl.train import draw_two_views
from fedmia.storage.snapshot import ClientState, LocalTraining
from fedmia.threat.whitebox import split_in_halves
from strategies.fedema import FedEMA
from tests.defenses.conftest import kept
from tests.small_setup import changed, settle
from tests.strategies.conftest import exactly


def client_round(
    client_setup: ClientSetup, store: Ledger, received: State, round: int,
    name: str = "fedavg", *, client: int = 0, craft: bool = False, **options: Any,
) -> ClientRound:  # fmt: skip
    """A client in a round under the strategy `name`."""
    setup = changed(client_setup, strategy=(name, options))
    task = ClientTask(client, round, "main", craft)
    return ClientRound(setup, store.load("main", client), task, received)


@pytest.fixture
def first(client_setup: ClientSetup) -> State:
    """The run's first weights."""
    return client_setup.method(-1, None).shared_state()


def sent(at: ClientRound, store: Ledger | None = None) -> State:
    """A whole round of an honest client."""
    return settle(store or Ledger(), at, Honest().answer(at)).state


def distance(a: State, b: State) -> float:
    return math.sqrt(sum(float(((a[n] - b[n]).double() ** 2).sum()) for n in a))


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.0])
def test_fedema__start_of_a_round_by_the_formula(
    client_setup: ClientSetup, first: State, tau: float
) -> None:
    store = Ledger()
    own = sent(client_round(client_setup, store, first, 1, "fedema", tau=tau), store)
    plain = sent(client_round(client_setup, Ledger(), first, 1))
    assert exactly(own, plain)  # nothing of its own to mix in yet

    scale = None
    for round, shift in ((2, 0.05), (3, 0.02), (4, 0.5)):
        received = {n: t + shift for n, t in own.items()}
        tensors, memory = kept(store).tensors, dict(kept(store).memory)
        mine = {n[9:]: t for n, t in tensors.items() if n.startswith("strategy.")}
        assert exactly(mine, own)
        gap = distance(own, received)
        scale = tau / gap if scale is None else scale  # lambda, fixed in the second round
        mu = min(1.0, scale * gap)
        start = FedEMA(tau=tau).begin(LocalTraining(received, {}, mine, memory, {}))
        want = {n: mu * own[n] + (1 - mu) * received[n] for n in received}
        torch.testing.assert_close(start, want, atol=1e-6, rtol=1e-5)
        if round == 2:
            assert mu == pytest.approx(tau)
        own = sent(client_round(client_setup, store, received, round, "fedema", tau=tau), store)
    assert kept(store).memory["ema_mu"] == pytest.approx(mu, rel=1e-4)


def test_fedprox__mu_reaches_the_steps_and_0_is_fedavg(
    client_setup: ClientSetup, first: State
) -> None:
    ends = [
        sent(client_round(client_setup, Ledger(), first, 1, "fedprox", mu=mu))
        for mu in (0.0, 0.5, 5.0)
    ]
    assert exactly(sent(client_round(client_setup, Ledger(), first, 1)), ends[0])
    far = [distance(end, first) for end in ends]
    assert far[0] > far[1] > far[2]


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_scaffold__reach_counts_what_momentum_makes_of_a_step(
    client_setup: ClientSetup, first: State, momentum: float
) -> None:
    """W is how far a gradient of 1 in each of K steps moves a weight in the end, and the control
    what was sent over W: Algorithm 1 at momentum 0, so many times a step under momentum."""
    train, store = (
        replace(client_setup.experiment.train, momentum=momentum, schedule="constant"),
        Ledger(),
    )
    at = client_round(changed(client_setup, train=train), store, first, 1, "scaffold")
    update = settle(store, at, Honest().answer(at))
    want = 3 * 0.05 / (1 - momentum)  # six images, two a step
    assert update.metrics["scaffold_reach"] == pytest.approx(want)
    for name in dict(client_setup.method(-1, None).encoder.named_parameters()):
        slope = (first[name] - update.state[name]) / want
        torch.testing.assert_close(kept(store).tensors[f"strategy.{name}"], slope)


def test_desk__resumes_queue_key_encoder_and_momentum(
    client_setup: ClientSetup, first: State
) -> None:
    store = Ledger()
    at = client_round(client_setup, store, first, 1)
    trained, metrics, method = at.train()
    assert kept(store) is None  # until the upload is settled
    settle(store, at, at.final(trained, metrics))
    tensors = dict(kept(store).tensors)
    assert torch.equal(tensors["local.queue"], method.local_state()["queue"])
    assert any(n.startswith("optimizer.") for n in tensors)
    assert not any(n.startswith(("strategy.", "running.")) for n in tensors)
    again = Ledger()
    again.save("main", 0, ClientState(tensors, {}))
    onward, fresh, resumed = (
        client_round(client_setup, one, trained, 2).train()[0] for one in (store, Ledger(), again)
    )
    assert not exactly(onward, fresh) and exactly(resumed, onward)


@pytest.mark.parametrize("knows", [False, True])
def test_two_malicious_clients__send_the_same_where_they_know_the_server(
    client_setup: ClientSetup, first: State, knows: bool
) -> None:
    """And else each what it climbs to by itself."""
    attack = Ascent(steps=1, lr=0.05, server="known" if knows else "unknown")
    setup = attacked(client_setup, attack, malicious=2, share=1 / 3)
    assert setup.fellows == ((1, 2) if knows else (1,))
    store, uploads = Ledger(), []
    for client in (1, 2):
        for craft in (False, True):
            at = client_round(setup, store, first, 1 + craft, client=client, craft=craft)
            state = settle(store, at, Active().answer(at)).state
        uploads.append(state)
    assert exactly(*uploads) == knows
    method, stream = client_setup.method(-1, None), np.random.default_rng(0)
    turns = setup.attack_turn(method, first, first, 0, {}, stream)
    assert turns.share == pytest.approx(2 / 3 if knows else 1 / 3)


def attacked(
    client_setup: ClientSetup, attack: Any, malicious: int = 1, **more: Any
) -> ClientSetup:
    """The last clients attack the first six images; twelve others are held."""
    roles = ("honest",) * (3 - malicious) + ("active",) * malicious
    images = {"targets": np.arange(6), "held": np.arange(6, 18)}
    return changed(client_setup, roles=roles, attack=attack, **images, **more)


@dataclass(frozen=True)
class Noting(ClientSetup):
    """Notes the images of each training."""

    trained_on: list[Any] = field(default_factory=list)

    def job(self, method: Any, images: Any, *more: Any, **rest: Any) -> Any:
        self.trained_on.append(images)
        return super().job(method, images, *more, **rest)


@pytest.mark.parametrize(
    ("name", "share", "malicious", "sizes"),
    [("krum", 1 / 5, 1, [1, 3, 4, 6]), ("krum", 1 / 5, 2, [2, 4, 6]), ("krum", 1.0, 1, [3, 6]),
     ("krum", 1 / 40, 1, [1, 1, 2, 3, 3, 4, 5, 6]), ("trimmed-mean", 1 / 5, 1, [1, 3, 4, 6]),
     ("norm-clip", 1 / 5, 1, [])],
)  # fmt: skip
def test_passing__rests_on_guesses_by_the_attackers_own_images(
    client_setup: ClientSetup, first: State, name: str, share: float, malicious: int,
    sizes: list[int],
) -> None:  # fmt: skip
    """Where the rule compares updates: one for each honest client, eight at most, from few images
    to all, of the first attacker alone, once a round; each fellow guesses the same."""
    attack = Ascent(steps=2, lr=0.5, server="known")
    setup, ways = attacked(client_setup, attack, malicious, share=share), []
    for client in setup.fellows:
        own = Noting(**{f.name: getattr(setup, f.name) for f in fields(setup)})
        at = client_round(own, Ledger(), first, 1, name, client=client, craft=True)
        crafted = Active().answer(at)[0].state
        ways.append(own.trained_on)
    mine = {image.tobytes() for image in setup.images[setup.parts["members"][3 - malicious]]}
    for way in ways:
        assert [len(images) for images in way] == sizes
        assert {image.tobytes() for images in way for image in images} <= mine
        assert all(map(np.array_equal, way, ways[0]))
    if name == "norm-clip":
        assert distance(crafted, first) == pytest.approx(1.0, rel=1e-3)


def test_settle__what_is_not_finite_is_not_kept(client_setup: ClientSetup, first: State) -> None:
    """The client goes on from where it was, and its defences' memory from where it is."""
    store, states = Ledger(), []
    for round, lr in ((1, 0.05), (2, 1e38)):
        setup = changed(client_setup, train=replace(client_setup.experiment.train, lr=lr))
        at = client_round(setup, store, first, round)
        trained, metrics, _ = at.train()
        assert all(bool(t.isfinite().all()) for t in trained.values()) == (round == 1)
        at.memory["rounds"] = round
        assert settle(store, at, at.final(first, metrics)).examples == 6
        states.append((dict(kept(store).tensors), kept(store).memory["rounds"]))
    assert exactly(states[0][0], states[1][0]) and [n for _, n in states] == [1, 2]


def test_settle__without_training_nothing_is_kept_and_no_image_counts(
    client_setup: ClientSetup, first: State
) -> None:
    store = Ledger()
    update, new = client_round(client_setup, store, first, 3).final(first, {})
    assert (update.client, update.round, update.examples) == (0, 3, 0)
    assert new is None and exactly(update.state, first)


def test_round__leaves_the_state_that_it_began_from(
    client_setup: ClientSetup, first: State
) -> None:
    """A client that is asked again begins from the same: tensors, and its defences' memory."""
    store, layer = Ledger(), ("gaussian", {"scale": 0.1}, frozenset({0}))
    setup, ends = changed(client_setup, defense=(layer,)), []
    sent(client_round(setup, store, first, 1), store)
    before = kept(store)
    twin = copy.deepcopy(before)
    for _ in range(2):
        ends.append(Honest().answer(client_round(setup, store, first, 2)))
        assert exactly(before.tensors, twin.tensors) and before.memory == twin.memory
    (update, new), (again, renewed) = ends
    assert exactly(update.state, again.state) and exactly(new.tensors, renewed.tensors)
    assert new.memory == renewed.memory != before.memory


@pytest.mark.parametrize("attacked", [False, True])
@pytest.mark.parametrize("rate", ["schedule", "constant"])
def test_job__stands_where_the_round_is_in_the_run(
    client_setup: ClientSetup, rate: str, attacked: bool
) -> None:
    """Two epochs of three steps a round, the third of four rounds; `constant` is the first rate, in
    attacked rounds alone."""
    train = replace(client_setup.experiment.train, local_epochs=2, batch_size=2, warmup_epochs=1.0)
    setup = changed(client_setup, train=train, attacked_rate=rate)
    method, stream = setup.method(0, 5), np.random.default_rng(0)
    job = setup.job(method, setup.images[np.arange(5)], 3, stream, attacked)
    assert (job.step, job.total_steps, len(job.images)) == (12, 24, 5)
    constant = replace(train, schedule="constant", warmup_epochs=0.0, lr=0.05)
    assert job.train == (constant if attacked and rate == "constant" else train)
    for branch in ("zero", "main"):
        assert setup.branch_parts(branch) is setup.parts["members"]


@pytest.mark.parametrize(
    ("schedule", "attacked_rate", "rate"),
    [
        ("constant", "schedule", 0.05),
        ("cosine", "schedule", 0.025 * (1 + math.cos(math.pi * 2 / 4))),  # two of four are over
        ("cosine", "constant", 0.05),
    ],
)
def test_matched__climbs_as_honest_clients_train(
    client_setup: ClientSetup, first: State, schedule: str, attacked_rate: str, rate: float
) -> None:
    """Three steps for three local epochs, by SGD with momentum and decay, at the rate with which
    honest clients begin the third round."""
    options = {"local_epochs": 3, "momentum": 0.8, "weight_decay": 0.3, "schedule": schedule}
    train = replace(client_setup.experiment.train, **options)
    setup = attacked(
        client_setup, AscentAlgorithm1(batch=6), train=train, attacked_rate=attacked_rate
    )
    at = client_round(setup, Ledger(), first, 3, client=2, craft=True)
    crafted = at.craft(at.idle(), first)

    method, stream = at.idle(), rng(0, "craft", 3, 2)
    halves, _ = split_in_halves(setup.take(setup.held))
    method.fill_bank(halves[1])  # no target is held
    weights = list(method.encoder.parameters())
    sgd = torch.optim.SGD(weights, lr=rate, momentum=0.8, weight_decay=0.3)
    for _ in range(3):
        rows = stream.permutation(6)
        view1, view2 = draw_two_views(setup.take(rows), setup.augment, stream)
        sgd.zero_grad()
        (-attack_losses(method, view1, view2, "algorithm1").mean()).backward()
        sgd.step()
    torch.testing.assert_close(crafted, method.shared_state(), atol=1e-6, rtol=1e-4)
    assert distance(crafted, first) > 0.01


@pytest.mark.parametrize("keep", ["keep", "reset"])
def test_resumed__momentum_where_it_is_kept_and_statistics_that_stay(
    client_setup: ClientSetup, keep: str
) -> None:
    """Local batch norm's running statistics go on from the client's own, not from the server's."""
    setup = changed(
        client_setup, batch_norm="local", model=("smallnet", {"width": 2, "norm": "batch"}),
        train=replace(client_setup.experiment.train, optimizer_state=keep),
    )  # fmt: skip
    store, received = Ledger(), setup.method(-1, None).shared_state()
    names = [n for n in received if ".running_" in n]
    for round in (1, 2):
        at = client_round(setup, store, received, round)
        update = settle(store, at, Honest().answer(at))
        tensors = kept(store).tensors
        assert not [n for n in update.state if ".running_" in n]
        assert any(n.startswith("optimizer.") for n in tensors) == (keep == "keep")
        running = {n[8:] for n in tensors if n.startswith("running.")}
        assert running and running == set(names)
        assert all(float(tensors[f"running.{n}"].abs().max()) < 100 for n in names)
        received |= {n: received[n] + 1e4 for n in names}  # which the server cannot know


def test_client__works_where_it_trains(client_setup: ClientSetup, first: State) -> None:
    """Whoever sends the weights: a server's are on the CPU."""
    elsewhere = replace(client_setup, device="meta")
    at = client_round(elsewhere, Ledger(), first, 1)
    turn = elsewhere.attack_turn(
        client_setup.method(-1, None), first, first, 0, {}, rng(0, "craft")
    )
    for state in (at.received, turn.received, turn.trained):
        assert state.keys() == first.keys() and all(t.is_meta for t in state.values())
