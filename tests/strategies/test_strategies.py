"""Strategies and their cohorts against numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from fedmia.settings import registry
from fedmia.storage.snapshot import Update
from strategies.cohort import Phase, draw_cohort
from strategies.fedavg import FedAvg
from strategies.fedavgm import FedAvgM
from tests.strategies.conftest import exactly, some_state, updates


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
    G + (L - G) would differ from L; equal updates are kept likewise."""
    for seed in range(20):
        G, L = some_state(seed, scale=1.0), some_state(seed + 50, scale=1e-3)
        for weighting in ("uniform", "examples"):
            strategy = registry.build("strategy", name, {"weighting": weighting})
            for clients in (1, 7):
                ups = [Update(c, 1, L, 7 + c, {}) for c in range(clients)]
                assert exactly(strategy.aggregate(G, ups), L)
    assert any(not torch.equal(G[n] + (L[n] - G[n]), L[n]) for n in G)


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
        want, got = (s.aggregate(G, updates(3, round)) for s in (plain, momentum))
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)
        G = want
    assert momentum.velocity and not FedAvgM().velocity  # no two share one


@pytest.mark.parametrize(("clients", "share", "size"), [(10, 1.0, 10), (10, 0.25, 3), (3, 0.5, 2),
                                                        (10, 0.01, 1), (1, 0.3, 1)])  # fmt: skip
def test_cohort__is_seeded_sorted_and_of_the_size_asked(
    clients: int, share: float, size: int
) -> None:
    draws = []
    for seed, round in itertools.product((0, 1), range(1, 9)):
        picked = draw_cohort(Phase("main", 0, 8, False, share, seed), round, clients)
        assert picked == sorted(set(picked)) and len(picked) == size
        assert set(picked) <= set(range(clients))
        other = Phase("zero", 4, 8, True, share, seed)
        assert draw_cohort(other, round, clients) == picked  # branches are paired
        draws.append(tuple(picked))
    if size < clients:
        assert len(set(draws)) > 1
        assert {c for picked in draws for c in picked} == set(range(clients)) or size == 1
