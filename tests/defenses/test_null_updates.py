"""Updates that no norm bounds: they are put to nothing before they are clipped and noised."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clients.honest import Honest
from fedmia.defenses._noise import ReleaseNoise
from fedmia.defenses.base import Preparation
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.heads.sensitivity import sample_sensitivity
from fedmia.defenses.heads.stack import HeadStack
from fedmia.defenses.laplace import Laplace
from fedmia.defenses.logistic import Logistic
from fedmia.defenses.sensitivity import sampled_sensitivity
from fedmia.federation.ledger import Ledger
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from strategies.base import FederatedStrategy
from strategies.dp_fedavg import DPFedAvg
from strategies.norm_clip import NormClip
from tests.defenses.conftest import kept
from tests.small_setup import settle

KINDS = [Logistic, Laplace, Gaussian]
NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "norm overflows": 1e308}


def spoiled(value: float) -> tuple[State, State]:
    """Weights, and where training took them: one number of one tensor is `value`, others are far
    beyond C = 1."""
    received = {"a": torch.zeros(4, dtype=torch.float64), "b": torch.ones(3, dtype=torch.float64)}
    far = torch.tensor([1e4, -2e4, 3e4], dtype=torch.float64)
    trained = {"a": torch.full((4,), value, dtype=torch.float64), "b": far}
    if not math.isfinite(value):
        trained["a"][1:] = 0.0
    return received, trained


@pytest.mark.parametrize("what", NUMBERS)
@pytest.mark.parametrize("cls", KINDS)
def test_release__of_no_finite_norm_is_noise_on_what_was_received(
    cls: type[ReleaseNoise], what: str
) -> None:
    received, trained = spoiled(NUMBERS[what])
    defense, memory = cls(scale=0.3, clip=1.0), dict[str, Any]()
    got, metrics = defense.release(received, trained, memory, rng(0, "x"))
    null, _ = defense.release(received, dict(received), {}, rng(0, "x"))
    assert all(torch.equal(got[n], null[n]) for n in received)
    assert all(math.isfinite(v) for v in metrics.values())
    assert metrics["update_norm"] == metrics["clipped"] == 0.0
    memory = json.loads(json.dumps(memory, allow_nan=False))
    sound = {n: t + 0.1 for n, t in received.items()}
    got, want = (defense.release(received, sound, m, rng(1, "x"))[0] for m in (memory, {}))
    assert all(torch.equal(got[n], want[n]) for n in received)
    stated: Any = defense.privacy(memory)
    assert stated.rounds == 2 and stated.value is not None


@pytest.mark.parametrize("cls", KINDS)
def test_release__beyond_its_type_is_its_largest_number(cls: type[ReleaseNoise]) -> None:
    top = torch.finfo(torch.float32).max
    received = {"w": torch.cat([torch.full((50,), top), torch.full((50,), -top)])}
    got, _ = cls(scale=1e38, clip=1.0).release(received, dict(received), {}, rng(0, "x"))
    assert got["w"].isfinite().all() and float(got["w"].abs().max()) == top


@pytest.mark.parametrize("make", [NormClip, lambda: DPFedAvg(noise_multiplier=0.5)])
@pytest.mark.parametrize("what", NUMBERS)
def test_server__takes_an_update_of_no_finite_norm_for_none(
    make: Callable[[], FederatedStrategy], what: str
) -> None:
    received, trained = spoiled(NUMBERS[what])
    other = {n: t + 0.1 for n, t in received.items()}
    ends, told = [], []
    for state in (trained, dict(received)):
        strategy = make()
        ups = [Update(0, 1, state, 3, {}), Update(1, 1, other, 3, {})]
        ends.append(strategy.aggregate(received, ups))
        told.append(vars(strategy)["last"])
    assert all(torch.equal(ends[0][n], ends[1][n]) for n in received)
    assert all(t.isfinite().all() for t in ends[0].values())
    assert told[0] == told[1]


def test_client__that_diverged_sends_noise_and_goes_on_from_before(make_desk: Any) -> None:
    """Its queue, key encoder and momenta too: a number that is not finite would stay in them."""
    options, store = {"scale": 1e-6, "clip": 0.5}, Ledger()
    first = make_desk("gaussian", options, store, 1)
    weights = sum(t.numel() for t in first.received.values())
    for round, spoil in enumerate((True, False, True, False), start=1):
        at = make_desk("gaussian", options, store, round, first.received)
        if spoil:
            at.received = {n: t * math.nan for n, t in first.received.items()}
            trained, metrics, _ = at.train()
            assert not all(t.isfinite().all() for t in trained.values())
            at.received = first.received
            released, more = at.release(trained)
            update = settle(store, at, at.final(released, metrics | more))
        else:
            update = settle(store, at, Honest().answer(at))
        client_state = kept(store)
        assert client_state.memory["defense"]["gaussian"]["rounds"] == round
        tensors = [*update.state.values(), *client_state.tensors.values()]
        assert all(t.isfinite().all() for t in tensors)
        assert all(math.isfinite(v) for v in update.metrics.values())
        assert bool(client_state.tensors) == (round > 1)
        if round == 2:  # the first that counts
            anew = make_desk("gaussian", options, None, 2, first.received)
            fresh = Honest().answer(anew)[0].state
            assert all(torch.equal(t, update.state[n]) for n, t in fresh.items())
        moved = float(sum((update.state[n] - t).norm() ** 2 for n, t in first.received.items()))
        assert (moved**0.5 > 2e-6 * weights**0.5) != spoil  # trained, or noise alone


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_sensitivity__of_trainings_that_diverged_is_refused(value: float) -> None:
    """It would be taken for 0, or for noise without end."""

    def rehearse(positions: Any) -> State:
        return {"w": torch.tensor([1.0 if 0 in positions else value])}

    preparation = Preparation(1, 4, rehearse, rng(0, "x"), np.zeros((0, 1, 8, 8), np.uint8))
    with pytest.raises(InputError, match="training diverged; lower train.lr"):
        sampled_sensitivity(preparation, 20, 2)

    def heads(rows: torch.Tensor) -> HeadStack:
        return HeadStack((torch.full((len(rows), 2, 1), value),), (torch.zeros(len(rows), 1, 1),))

    with pytest.raises(InputError, match="a head diverged; lower lr"):
        sample_sensitivity(heads, np.arange(6), 3, rng(0, "x"))
