"""Strategies and their cohorts against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedmia.options import registry
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from strategies.base import (
    RoundRange,
    draw_cohort,
)
from strategies.fedavg import FedAvg
from strategies.fedavgm import FedAvgM


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


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_fedavgm__two_rounds(eta: float, weighting: str) -> None:
    beta = 0.8
    strategy = FedAvgM(server_lr=eta, beta=beta, weighting=weighting)
    G = some_state(99)
    second = strategy.aggregate(strategy.aggregate(G, updates(3, 1)), updates(3, 2))
    for name in G:
        g0 = G[name].numpy().astype(np.float64)
        v1 = g0 - numpy_mean(updates(3, 1), name, weighting)
        g1 = g0 - eta * v1
        v2 = beta * v1 + (g1 - numpy_mean(updates(3, 2), name, weighting))
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


@pytest.mark.parametrize(("clients", "share", "size"), [(10, 1.0, 10), (10, 0.25, 3), (3, 0.5, 2),
                                                        (10, 0.01, 1), (1, 0.3, 1)])  # fmt: skip
def test_cohort__is_seeded_sorted_and_of_the_size_asked(
    clients: int, share: float, size: int
) -> None:
    draws = []
    for seed in (0, 1):
        for round in range(1, 9):
            course = RoundRange("main", 0, 8, False, share, seed)
            picked = draw_cohort(course, round, clients)
            assert picked == sorted(set(picked)) and len(picked) == size
            assert set(picked) <= set(range(clients))
            other = RoundRange("zero", 4, 8, True, share, seed)
            assert draw_cohort(other, round, clients) == picked  # branches are paired
            draws.append(tuple(picked))
    if size < clients:
        assert len(set(draws)) > 1
        assert {c for picked in draws for c in picked} == set(range(clients)) or size == 1
