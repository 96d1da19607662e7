"""The Sensitivity Sampler against Algorithm 2 written out on the client's own training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from clients.honest import Honest
from fedmia.defenses._sensitivity import sampled_sensitivity
from fedmia.defenses.base import PreparationContext
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.ssl.base import State
from fedmia.ssl.moco import MoCo
from fedmia.ssl.train import Job, make_optimizer
from fedmia.storage.snapshot import MemoryStore

NONE = np.zeros((0, 1, 8, 8), np.uint8)

OPTIONS = {"sensitivity": "sampled", "samples": 3}


def naive(client_round: Any, pairs: int, order: int) -> float:
    """Algorithm 2: max over pairs of ||w(D \\ d_i) - w(D \\ d_j)||, shared randomness."""
    client_context, draw, gaps = client_round.client_context, rng(0, "prepare", 1, 0), []
    for _ in range(pairs):
        i, j = (int(x) for x in draw.choice(10, 2, replace=False))
        first = [k for k in range(10) if k != i]
        second = [i if k == j else k for k in first]
        assert sorted(second) == [k for k in range(10) if k != j]
        trained = []
        for kept in (first, second):
            method = client_context.method(0, 9)
            method.load_shared(client_round.received)
            method.begin_first_round()
            job = Job(
                method, make_optimizer(method, client_context.train),
                np.array(client_context.images[kept]),
                MoCo(dim=8).augment, client_context.train, rng(0, "train", 1, 0), 0, 4 * 2,
                torch.device("cpu"),
            )  # fmt: skip
            job.run()
            weights = [p.detach().double().flatten() for p in method.encoder.parameters()]
            trained.append(torch.cat(weights).numpy())
        gaps.append(np.linalg.norm(trained[0] - trained[1], order))
    return float(max(gaps))


@pytest.mark.parametrize("name, order", [("logistic", 1), ("gaussian", 2)])
def test_sampler__equals_the_naive_loop(name: str, order: int, make_desk: Any) -> None:
    store = MemoryStore()
    client_round = make_desk(name, OPTIONS, store)
    Honest().answer(client_round)
    client_state = store.load("main", 0)
    assert client_state is not None
    memory = client_state.memory["defense"][name]
    sensitivity = memory["sensitivity"]
    assert sensitivity > 0
    assert sensitivity == pytest.approx(naive(client_round, 3, order), rel=1e-9)
    assert memory["metrics"]["clipped"] == 0.0
    ((_, defense),) = client_round.defense.layers
    stated = defense.privacy(memory)
    assert stated.standing == "empirical" and "3 pairs" in stated.assumptions
    assert stated.value == pytest.approx(defense.spent(sensitivity, defense.default_scale, 1))


def test_sampler__sampled_once_and_training_is_what_it_was(make_desk: Any) -> None:
    store, plain = MemoryStore(), MemoryStore()
    client_round = make_desk("logistic", OPTIONS, store)
    one, _, _ = client_round.train()
    other, _, _ = make_desk("logistic", {}, plain).train()
    assert all(torch.equal(one[n], other[n]) for n in one)
    client_round.finish_round(one, {})
    first = store.load("main", 0)
    assert first is not None
    client_round = make_desk("logistic", OPTIONS, store, 2)
    client_round.rehearse = lambda positions: pytest.fail("sampled a second time")
    client_round.finish_round(client_round.train()[0], {})
    second = store.load("main", 0)
    assert second is not None
    assert (
        second.memory["defense"]["logistic"]["sensitivity"]
        == first.memory["defense"]["logistic"]["sensitivity"]
    )


def test_sampler__maximum_of_known_distances() -> None:
    def rehearse(positions: np.ndarray) -> State:
        return {"w": torch.tensor([float(np.asarray(positions).sum()), 0.0])}

    preparation = PreparationContext(1, 5, rehearse, rng(3, "pairs"), NONE)
    draw = rng(3, "pairs")
    pairs = [draw.choice(5, 2, replace=False) for _ in range(4)]
    expected = max(abs(int(i) - int(j)) for i, j in pairs)  # sums differ by what was left out
    assert sampled_sensitivity(preparation, 4, 1) == expected


def test_sampler__the_largest_wherever_it_was_seen() -> None:
    """After more pairs the estimate is never smaller, though the last distance is."""

    def rehearse(positions: np.ndarray) -> State:
        return {"w": torch.tensor([float(np.asarray(positions).sum())])}

    draw = rng(2, "pairs")
    draws = [draw.choice(9, 2, replace=False) for _ in range(6)]
    gaps = [float(abs(int(i) - int(j))) for i, j in draws]
    assert 0 < int(np.argmax(gaps)) < 5 and gaps[-1] < max(gaps)
    sensitivities = [
        sampled_sensitivity(PreparationContext(1, 9, rehearse, rng(2, "pairs"), NONE), pairs, 2)
        for pairs in range(1, 7)
    ]
    assert sensitivities == np.maximum.accumulate(gaps).tolist()


@pytest.mark.parametrize("name", ["logistic", "laplace", "gaussian"])
def test_sampler__nothing_is_clipped(name: str, states: tuple[State, State]) -> None:
    """As its statement says, however long the update: no C has a part in it."""
    received = states[0]
    far = {n: t + 10.0 for n, t in received.items()}
    law = registry.build("defense", name, {"sensitivity": "sampled", "scale": 0.0})
    released, metrics = law.release(received, far, {"sensitivity": 1.0}, rng(0, "x"))
    assert all(torch.equal(released[n], far[n]) for n in far)
    assert metrics["clipped"] == 0.0


def test_sampler__one_image_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2 images, got 1"):
        sampled_sensitivity(PreparationContext(1, 1, lambda p: {}, rng(0, "x"), NONE), 1, 1)
