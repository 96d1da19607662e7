"""SCAFFOLD against Algorithm 1 of its paper, and against client drift in closed form."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clients.app import answer
from clients.client_setup import ClientSetup
from fedmia.federation.inline import InlineGrid
from fedmia.federation.ledger import Ledger
from fedmia.seeding import rng
from fedmia.ssl.base import State
from fedmia.ssl.train import Job, Train, make_optimizer
from fedmia.storage.snapshot import LocalTraining, Update
from strategies.base import FederatedStrategy
from strategies.cohort import Phase
from strategies.failure_policy import FailurePolicy
from strategies.fedavg import FedAvg
from strategies.scaffold import METRIC, Scaffold
from tests.small_runs import SMALL, ran
from tests.small_setup import small_setup

RATE, ROUNDS = 0.05, 3


def algorithm_1(client_setup: ClientSetup) -> tuple[list[State], State, list[State]]:
    """Algorithm 1, option II, eta_g 1, all clients: x of every round, c, and every c_i."""
    x = client_setup.method(-1, None).shared_state()
    c = {n: torch.zeros_like(t) for n, t in x.items()}
    controls = [dict(c), dict(c)]
    parts = client_setup.parts["members"]
    clients = [
        client_setup.method(i, len(parts[i])) for i in (0, 1)
    ]  # queue and key encoder live on
    models, spec = [x], client_setup.experiment.ssl.build("ssl")
    for round in range(1, ROUNDS + 1):
        ends, moved = [], []
        for i, method in enumerate(clients):
            method.load_shared(x)
            method.begin_first_round() if round == 1 else method.begin_round()
            job = Job(
                method, make_optimizer(method, client_setup.experiment.train),
                client_setup.images[parts[i]], spec.augment,
                client_setup.experiment.train, rng(client_setup.experiment.seed, "train", round, i),
                0, 1, torch.device("cpu"),
            )  # fmt: skip
            steps = 0
            method.train()
            for views in job.batches():
                y = dict(method.encoder.named_parameters())
                slopes = torch.autograd.grad(method.losses(*views).mean(), list(y.values()))
                with torch.no_grad():
                    for (name, w), slope in zip(y.items(), slopes, strict=True):
                        w -= RATE * (slope - controls[i][name] + c[name])
                method.after_step()
                steps += 1
            y = method.shared_state()
            new = {n: controls[i][n] - c[n] + (x[n] - y[n]) / (steps * RATE) for n in x}
            moved.append({n: new[n] - controls[i][n] for n in x})
            controls[i] = new
            ends.append(y)
        x = {n: (ends[0][n] + ends[1][n]) / 2 for n in x}
        c = {n: c[n] + (moved[0][n] + moved[1][n]) / 2 for n in x}
        models.append(x)
    return models, c, controls


def test_rounds__are_algorithm_1(tmp_path: Path, textures: Any) -> None:
    """Through messages and desks; shards of 17 images, so batches are uneven."""
    np.save(tmp_path / "images.npy", textures(34).numpy())
    train = Train(2, 8, lr=RATE, momentum=0.0, weight_decay=0.0, schedule="constant")
    setup = small_setup(
        tmp_path / "images.npy", np.split(np.arange(34), 2), strategy=("scaffold", {}), train=train
    )
    models, c, controls = algorithm_1(setup)
    store, phase = Ledger(), Phase("main", 0, ROUNDS, False, 1.0, 0, ROUNDS)
    grid = InlineGrid(partial(answer, setup), 2, 2, 1, store)
    with closing(grid):
        rounds = Scaffold().rounds(grid, phase, models[0], FailurePolicy(2))
        state = [{n: t.clone() for n, t in done.state.items()} for done in rounds]
    assert len(state) == ROUNDS
    for got, want in zip(state, models[1:], strict=True):
        for name in want:
            torch.testing.assert_close(got[name], want[name], atol=1e-6, rtol=0)
    for client, want in enumerate(controls):
        client_state: Any = store.load("main", client)
        for name in want:
            got = client_state.tensors[f"strategy.{name}"]
            torch.testing.assert_close(got, want[name], atol=2e-5, rtol=0)  # (x - y) / 0.3
    largest = max(float(t.abs().max()) for t in c.values())
    assert largest > 100 * 2e-5  # the controls are no zeros


class Toy:
    """Clients whose loss is a/2 (w - t)^2 in one weight, under the halves of a strategy."""

    def __init__(self, strategy: FederatedStrategy, slopes: list[float], ends: list[float]) -> None:
        self.strategy, self.slopes, self.ends = strategy, slopes, ends
        self.strategy.nodes = {i: i for i in range(len(ends))}
        self.kept: list[State] = [{} for _ in ends]
        self.x = torch.zeros(1, dtype=torch.float64)

    def client(self, i: int, steps: int = 5, rate: float = 0.1) -> Update:
        w, own = nn.Parameter(self.x.clone()), type(self.strategy)()
        broadcast = self.strategy.broadcast()
        local = LocalTraining({"w": self.x}, broadcast, self.kept[i], {}, {"w": w})
        w.data = own.begin(local)["w"].clone()
        for _ in range(steps):
            w.grad = self.slopes[i] * (w.detach() - self.ends[i])
            local.reach += rate
            own.after_backward(local)
            w.data -= rate * w.grad
        sent = {"w": w.detach().clone()}
        metrics = own.finish(local, sent, sent)
        self.kept[i] = local.own_state
        return Update(i, 1, sent, 1, metrics)

    def round(self, clients: Any = None) -> None:
        among = range(len(self.ends)) if clients is None else clients
        updates = [self.client(i) for i in among]
        self.x = self.strategy.aggregate({"w": self.x}, updates)["w"]


def test_drift__is_gone_where_fedavg_stays_at_its_own_fixed_point() -> None:
    slopes, ends = [1.0, 4.0, 0.2], [2.0, -1.0, 9.0]
    left = [(1 - 0.1 * a) ** 5 for a in slopes]  # of the way, after five steps
    biased = sum((1 - r) * t for r, t in zip(left, ends, strict=True)) / sum(1 - r for r in left)
    best = sum(a * t for a, t in zip(slopes, ends, strict=True)) / sum(slopes)
    assert abs(biased - best) > 0.5
    plain, free = Toy(FedAvg(), slopes, ends), Toy(Scaffold(), slopes, ends)
    for _ in range(300):
        plain.round()
        free.round()
    assert float(plain.x) == pytest.approx(biased, abs=1e-6)
    assert float(free.x) == pytest.approx(best, abs=1e-6)
    # At the optimum each control is the client's own slope there, and they cancel.
    for kept, a, t in zip(free.kept, slopes, ends, strict=True):
        assert float(kept["w"]) == pytest.approx(a * (best - t), abs=1e-5)
    assert float(free.strategy.broadcast()["w"]) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("cohorts", [[None] * 3, [(0, 2), (1, 2), (3,)]])
def test_control__is_the_mean_of_the_clients_and_moves_by_the_share_that_took_part(
    cohorts: Any,
) -> None:
    """Those who never trained count as zeros, as in Algorithm 1: c stays the mean over all N."""
    toy, zero = Toy(Scaffold(), [1.0, 4.0, 0.2, 2.0], [2.0, -1.0, 9.0, 3.0]), torch.zeros(1)
    for cohort in cohorts:
        toy.round(cohort)
        want = sum((k.get("w", zero) for k in toy.kept), zero.double()) / 4
        torch.testing.assert_close(toy.strategy.broadcast()["w"], want, atol=1e-9, rtol=0)


def test_client_without_a_step__keeps_its_control_and_is_left_out() -> None:
    toy = Toy(Scaffold(), [1.0, 4.0], [2.0, -1.0])
    toy.round()
    before, kept = toy.strategy.broadcast()["w"].clone(), toy.kept[1]["w"].clone()
    idle, busy = toy.client(1, steps=0), toy.client(0)
    assert idle.metrics[METRIC] == 0 and torch.equal(toy.kept[1]["w"], kept)
    toy.strategy.aggregate({"w": toy.x}, [busy, idle])
    slope = (toy.x - busy.state["w"]) / busy.metrics[METRIC]
    want = before + (slope - before) / 2
    torch.testing.assert_close(toy.strategy.broadcast()["w"], want, atol=1e-9, rtol=0)
    strategy = Scaffold()
    strategy.aggregate({"w": toy.x}, [Update(0, 1, {"w": toy.x + 1}, 1, {})])  # it never trained
    assert strategy.broadcast() == {}


def test_finish__takes_what_was_sent_not_what_was_trained() -> None:
    """So that the control holds the defence's noise and nothing from behind it."""
    x, w = torch.zeros(2), nn.Parameter(torch.zeros(2))
    local = LocalTraining(
        {"w": x}, {"w": torch.ones(2)}, {"w": torch.full((2,), 3.0)}, {}, {"w": w}, 0.5
    )
    noisy = torch.tensor([-1.0, 2.0])
    Scaffold().finish(local, {"w": torch.tensor([7.0, 7.0])}, {"w": noisy})
    torch.testing.assert_close(local.own_state["w"], 3 - 1 + (0 - noisy) / 0.5)


def test_statistics__of_batch_norm_have_no_control() -> None:
    state: State = {"w": torch.zeros(1), "bn.running_mean": torch.zeros(1)}
    strategy = Scaffold()
    sent: dict[str, Tensor] = {n: t + 1 for n, t in state.items()}
    strategy.aggregate(state, [Update(0, 1, sent, 1, {METRIC: 0.5})])
    assert set(strategy.broadcast()) == {"w"} and float(strategy.broadcast()["w"]) == -2.0


@pytest.mark.slow
def test_defence__spends_what_it_spends_under_fedavg(tmp_path: Path) -> None:
    results = {}
    for strategy in ("scaffold", "fedavg"):
        flags = (
            f"{SMALL}--clients 3 --rounds 2 --attacks none --strategy {strategy} "
            "--defense dpsgd,logistic --defense.dpsgd.epsilon 50 --defense.logistic.epsilon 500"
        )
        report = ran(flags, tmp_path / strategy)
        defences = [c["defence"] for c in report["clients"]]
        results[strategy] = [p["epsilon"] for d in defences for p in d["parts"]]
        assert all(r["loss"] is None for r in report["rounds"])  # it stays with the clients
        assert 0 <= report["utility"]["knn"] <= 1
    assert results["scaffold"] == results["fedavg"] and len(results["fedavg"]) == 6
    assert all(epsilon["value"] > 0 for epsilon in results["fedavg"])
