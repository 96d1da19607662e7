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
from fedmia.defenses._persample import (
    gradient_norms,
    image_gradients,
    private_optimizer,
    private_step,
)
from fedmia.defenses._sensitivity import sampled_sensitivity
from fedmia.defenses.base import PreparationContext
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.heads.sensitivity import sample_sensitivity
from fedmia.defenses.heads.stack import HeadStack
from fedmia.defenses.laplace import Laplace
from fedmia.defenses.logistic import Logistic
from fedmia.nets.smallnet import SmallNet
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.base import Recipe, State
from fedmia.ssl.moco import MoCo
from fedmia.storage.snapshot import MemoryStore, Update
from fedmia.testing.material import textures
from strategies.base import FederatedStrategy
from strategies.dp_fedavg import DPFedAvg
from strategies.norm_clip import NormClip

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
    got, _ = defense.release(received, sound, memory, rng(1, "x"))
    want, _ = defense.release(received, sound, {}, rng(1, "x"))
    assert all(torch.equal(got[n], want[n]) for n in received)
    stated = defense.privacy(memory)
    assert stated is not None and stated.rounds == 2 and stated.value is not None


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


def test_dpsgd__a_finite_gradient_without_a_finite_norm_is_a_null_record(make_job: Any) -> None:
    """Each number of it is finite in float32; the sum of their squares is not."""
    steps = []
    for rows in ([0, 1, 2], [0, 2]):
        recipe = Recipe((0.5,) * 3, (0.25,) * 3, 12, textures(9).numpy(), 4)
        spec, net = MoCo(dim=8, queue=6, queue_source="public"), SmallNet(width=4).build(3, 8)
        job = make_job(spec.build(net, recipe, torch_rng(0, "null")))
        weights = job.method.trainable()

        def scaled(job: Any, views: Any, rows: Any = rows, weights: Any = weights) -> Any:
            losses = image_gradients(job, views)
            if 1 in rows:
                for weight in weights:
                    weight.grad_sample[1] = 1e38
                assert gradient_norms(weights)[1] == math.inf
            return losses

        with (
            pytest.MonkeyPatch.context() as patch,
            private_optimizer(job, 0.0, 0.05, 4.0, torch.Generator()) as private,
        ):
            patch.setattr("fedmia.defenses._persample.image_gradients", scaled)
            sums: list[torch.Tensor] = []

            def note(_: object, sums: Any = sums, weights: Any = weights) -> None:
                sums.append(torch.cat([w.summed_grad.flatten() for w in weights]))

            private.attach_step_hook(note)
            images = textures(12).float()[rows] / 255
            _, norms = private_step(job, private, (images, images.flip(3)), 100)
        assert norms.isfinite().all()
        steps.append(sums[0])
    assert torch.allclose(steps[0], steps[1], atol=1e-6) and steps[0].norm() <= 0.1


def test_client__that_diverged_sends_noise_and_goes_on_from_before(make_desk: Any) -> None:
    """Its queue, key encoder and momenta too: a number that is not finite would stay in them."""
    options, store = {"scale": 1e-6, "clip": 0.5}, MemoryStore()
    first = make_desk("gaussian", options, store, 1)
    for round, spoil in enumerate((True, False, True, False), start=1):
        at = make_desk("gaussian", options, store, round, first.received)
        if spoil:
            at.received = {n: t * math.nan for n, t in first.received.items()}
            trained, metrics, _ = at.train()
            assert not all(t.isfinite().all() for t in trained.values())
            at.received = first.received
            released, more = at.release(trained)
            update = at.finish_round(released, metrics | more)
        else:
            update = Honest().answer(at)
        assert all(t.isfinite().all() for t in update.state.values())
        assert all(math.isfinite(v) for v in update.metrics.values())
        client_state = store.load("main", 0)
        assert (
            client_state is not None
            and client_state.memory["defense"]["gaussian"]["rounds"] == round
        )
        assert all(t.isfinite().all() for t in client_state.tensors.values())
        assert bool(client_state.tensors) == (round > 1)
        moved = float(sum((update.state[n] - t).norm() ** 2 for n, t in first.received.items()))
        weights = sum(t.numel() for t in first.received.values())
        if round == 2:  # the first that counts
            anew = make_desk("gaussian", options, MemoryStore(), 2, first.received)
            fresh = Honest().answer(anew).state
            assert all(torch.equal(t, update.state[n]) for n, t in fresh.items())
        assert (moved**0.5 > 2e-6 * weights**0.5) != spoil  # trained, or noise alone


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_sensitivity__of_trainings_that_diverged_is_refused(value: float) -> None:
    """It would be taken for 0, or for noise without end."""

    def rehearse(positions: Any) -> State:
        return {"w": torch.tensor([1.0 if 0 in positions else value])}

    preparation = PreparationContext(1, 4, rehearse, rng(0, "x"), np.zeros((0, 1, 8, 8), np.uint8))
    with pytest.raises(InputError, match="training diverged; lower train.lr"):
        sampled_sensitivity(preparation, 20, 2)

    def heads(rows: torch.Tensor) -> HeadStack:
        return HeadStack((torch.full((len(rows), 2, 1), value),), (torch.zeros(len(rows), 1, 1),))

    with pytest.raises(InputError, match="a head diverged; lower lr"):
        sample_sensitivity(heads, np.arange(6), 3, rng(0, "x"))
