"""Trainings before the first round: the Sensitivity Sampler, as Algorithm 2 has it, and C from
public images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from clients.honest import Honest
from fedmia.defenses.logistic import Logistic
from fedmia.defenses.sensitivity import sampled_sensitivity
from fedmia.federation.ledger import Ledger
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from tests.defenses.conftest import kept
from tests.defenses.test_release_noise import flat, preparation
from tests.small_setup import settle

OPTIONS = {"sensitivity": "sampled", "samples": 3}


PUBLIC = np.array([7, 8, 9])


def first_round(client_round: Any, indices: Any) -> State:
    """The run's own method after a first round on the images at `indices`."""
    setup = client_round.client_setup
    method = setup.method(0, len(indices))
    method.load_shared(client_round.received)
    method.begin_first_round()
    setup.job(method, setup.images[indices], 1, rng(0, "train", 1, 0)).run()
    return method.shared_state()


def naive(client_round: Any, pairs: int, order: int) -> float:
    """Algorithm 2: max over pairs of ||w(D \\ d_i) - w(D \\ d_j)||, shared randomness."""
    draw, gaps = rng(0, "prepare", 1, 0), []
    for _ in range(pairs):
        i, j = (int(x) for x in draw.choice(10, 2, replace=False))
        first = [k for k in range(10) if k != i]
        second = [i if k == j else k for k in first]
        assert sorted(second) == [k for k in range(10) if k != j]
        trained = [first_round(client_round, kept) for kept in (first, second)]
        gaps.append(np.linalg.norm(flat(*trained), order))
    return float(max(gaps))


@pytest.mark.parametrize("name, order", [("logistic", 1), ("gaussian", 2)])
def test_sampler__equals_the_naive_loop(name: str, order: int, make_desk: Any) -> None:
    store = Ledger()
    client_round = make_desk(name, OPTIONS, store)
    settle(store, client_round, Honest().answer(client_round))
    memory = kept(store).memory["defense"][name]
    sensitivity = memory["sensitivity"]
    assert sensitivity == pytest.approx(naive(client_round, 3, order), rel=1e-9) and sensitivity > 0
    assert memory["metrics"]["clipped"] == 0.0
    ((_, defense),) = client_round.defense.layers
    stated = defense.privacy(memory)
    assert stated.standing == "empirical" and "3 pairs" in stated.assumptions
    assert stated.value == pytest.approx(defense.spent(sensitivity, defense.default_scale, 1))


def test_sampler__sampled_once_and_training_is_what_it_was(make_desk: Any) -> None:
    store, sensitivities = Ledger(), []
    other, _, _ = make_desk("logistic", {}).train()
    for round in (1, 2):
        client_round = make_desk("logistic", OPTIONS, store, round)
        if round == 2:
            client_round.rehearse = lambda positions: pytest.fail("sampled a second time")
        one, _, _ = client_round.train()
        assert round == 2 or all(torch.equal(one[n], other[n]) for n in one)
        settle(store, client_round, client_round.final(one, {}))
        sensitivities.append(kept(store).memory["defense"]["logistic"]["sensitivity"])
    assert sensitivities[0] == sensitivities[1]


def test_sampler__the_largest_wherever_it_was_seen() -> None:
    """After more pairs the estimate is never smaller, though the last distance is."""

    def rehearse(positions: np.ndarray) -> State:
        return {"w": torch.tensor([float(np.asarray(positions).sum()), 0.0])}

    draw = rng(2, "pairs")
    draws = [draw.choice(9, 2, replace=False) for _ in range(6)]
    gaps = [float(abs(int(i) - int(j))) for i, j in draws]  # sums differ by what was left out
    assert 0 < int(np.argmax(gaps)) < 5 and gaps[-1] < max(gaps)
    for order in (1, 2):
        looks = [replace(preparation(1, 9), rehearse=rehearse, rng=rng(2, "pairs")) for _ in draws]
        found = [sampled_sensitivity(look, n, order) for n, look in enumerate(looks, start=1)]
        assert found == np.maximum.accumulate(gaps).tolist()
    with pytest.raises(InputError, match="at least 2 images, got 1"):
        sampled_sensitivity(preparation(1, 1), 1, 1)


@pytest.mark.parametrize("name, order", [("logistic", 1), ("gaussian", 2)])
def test_clip__is_the_norm_of_a_first_round_on_public_images(
    name: str, order: int, make_desk: Any
) -> None:
    """Three of them over and over, for seven images of the client's own; it looks at none."""
    bounds = []
    for own in (np.arange(7), np.array([9, 0, 1, 2, 3, 4, 5])):
        store = Ledger()
        client_round = make_desk(name, {}, store, public=PUBLIC, parts={"members": (own,)})
        rehearsed = first_round(client_round, [7, 8, 9, 7, 8, 9, 7])
        settle(store, client_round, Honest().answer(client_round))
        memory = kept(store).memory["defense"][name]
        expected = np.linalg.norm(flat(rehearsed, client_round.received), order)
        assert memory["clip"] == pytest.approx(expected, rel=1e-9)
        assert memory["sensitivity"] == 2 * memory["clip"]
        bounds.append(memory["clip"])
    assert bounds[0] == bounds[1] > 0


def test_clip__an_update_that_cannot_bound_is_not_taken(states: tuple[State, State]) -> None:
    received, trained = states
    for bad in (received, {n: t * torch.nan for n, t in trained.items()}):
        memory, look = dict[str, Any](), preparation(2)
        look = replace(look, rehearse_public=lambda b=bad: (received, b))
        Logistic().prepare(look, memory)
        assert "clip" not in memory
