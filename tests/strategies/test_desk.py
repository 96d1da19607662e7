"""What strategies ask of clients, and what a client keeps between rounds, through its desk."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from clients.base import Desk, Site, Task
from fedmia.federation.snapshot import LocalState, MemoryStore
from fedmia.ssl.base import State
from fedmia.ssl.train import Train
from strategies.fedema import FedEMA
from strategies.fedprox import FedProx


def exactly(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


@pytest.fixture
def site(tmp_path: Path, images: torch.Tensor) -> Site:
    """Three clients of six images each."""
    np.save(tmp_path / "images.npy", images.numpy())
    parts = tuple(np.arange(6 * c, 6 * c + 6) for c in range(3))
    return Site(
        seed=0, images_file=tmp_path / "images.npy", roles=("honest",) * 3,
        parts={"members": parts}, targets=np.arange(0), held=np.arange(0),
        model=("smallnet", {"width": 2}),
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
