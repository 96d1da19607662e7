"""Fe-MI and the training that it shares with SD-MI."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedmia.attacks._selector import (
    ScaledNetwork,
    TrainingRecipe,
    batched_recipe,
    full_batch_recipe,
    halving_factor,
    relu_attacker,
    tanh_attacker,
)
from fedmia.options import registry
from fedmia.records import EPOCHS_CUT
from fedmia.statistics.auc import auc
from tests.attacks.norm_leak import norm_leak
from tests.attacks.planted import fitted


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def kinds(network: nn.Module) -> list[Any]:
    return [
        (m.in_features, m.out_features) if isinstance(m, nn.Linear) else type(m)
        for m in network.children()
    ]


def test_networks__are_the_published_ones() -> None:
    assert kinds(relu_attacker(40)) == [(40, 256), nn.ReLU, (256, 256), nn.ReLU, (256, 1)]
    hidden = [nn.Tanh, (512, 512)] * 3
    assert kinds(tanh_attacker(40)) == [(40, 512), *hidden, nn.Tanh, (512, 1)]


def test_recipes__steps_cut_the_epochs() -> None:
    batches, whole = batched_recipe(500), full_batch_recipe(10_000)
    assert batches.batch == 128 and whole.batch is None
    assert batches.limit_epochs(60, 2000) == 500  # one step an epoch: all epochs fit
    assert batches.limit_epochs(4000, 2000) == 62  # 32 steps an epoch
    assert batches.limit_epochs(4000, 0) == 500
    assert batches.limit_epochs(4000, 5) == 1
    assert whole.limit_epochs(4000, 2000) == 2000 and whole.limit_epochs(4000, 0) == 10_000
    assert [halving_factor(e) for e in (0, 1999, 2000, 5999, 6000)] == [1, 1, 0.5, 0.25, 0.125]


@pytest.mark.parametrize(("name", "epochs"), [("fe-mi", 500), ("sd-mi", 200)])
def test_choices__say_where_the_epochs_were_cut(name: str, epochs: int) -> None:
    leak = norm_leak(known=4)
    attack = fitted(registry.build("attack", name, {"steps": 1}), leak.view, leak.known)
    assert attack.choices == {EPOCHS_CUT: f"1 of {epochs}"}


def test_scaled__is_full_batch_descent_on_inputs_of_the_known_range() -> None:
    """A naive twin of SD-MI's training loop for one linear layer, balanced sides."""
    draw = torch.Generator().manual_seed(0)
    inputs = 5 + 3 * torch.randn(10, 4, generator=draw)
    inputs[:, 3] = 7  # constant: only shifted
    truth = np.repeat([1, 0], 5)
    recipe = TrainingRecipe(
        6, None, partial(torch.optim.SGD, lr=0.1), lambda epoch: 0.5 ** (epoch // 2)
    )
    net = nn.Sequential(nn.Linear(4, 1))
    got = ScaledNetwork(net, inputs, truth, rng(), recipe, 0)
    start, still = nn.Sequential(nn.Linear(4, 1)), partial(torch.optim.SGD, lr=0.0)
    short = ScaledNetwork(start, inputs, truth, rng(), TrainingRecipe(6, None, still), 5)
    assert (got.cut, short.cut) == ({}, {EPOCHS_CUT: "5 of 6"})
    weight, bias = start[0].weight.detach()[0].tolist(), float(start[0].bias)
    low = [min(row[j] for row in inputs.tolist()) for j in range(4)]
    high = [max(row[j] for row in inputs.tolist()) for j in range(4)]

    def scaled(row: list[float]) -> list[float]:
        return [(row[j] - low[j]) / ((high[j] - low[j]) or 1) for j in range(4)]

    rows = [scaled(r) for r in inputs.tolist()]
    for epoch in range(6):
        rate = 0.1 * 0.5 ** (epoch // 2)
        gradient, of_bias = [0.0] * 4, 0.0
        for row, t in zip(rows, truth, strict=True):
            z = sum(w * x for w, x in zip(weight, row, strict=True)) + bias
            error = (1 / (1 + np.exp(-z)) - t) / len(rows)
            gradient = [g + error * x for g, x in zip(gradient, row, strict=True)]
            of_bias += error
        weight = [w - rate * g for w, g in zip(weight, gradient, strict=True)]
        bias -= rate * of_bias
    beyond = torch.tensor([[20.0, -3.0, 5.0, 7.5]])  # outside the known range: not cut off
    want = [
        sum(w * x for w, x in zip(weight, scaled(r), strict=True)) + bias for r in beyond.tolist()
    ]
    np.testing.assert_allclose(got.scores(beyond), want, rtol=1e-4)


@pytest.mark.slow
def test_leak_that_is_a_product__needs_all_epochs() -> None:
    """Members have x0 x1 > 0: no feature tells by itself, nor do 8 % of the recipe's epochs."""
    draw, truth = np.random.default_rng(0), np.repeat([1, 0], 150)

    def features() -> torch.Tensor:
        x = draw.normal(size=(300, 12))
        x[:, 1] *= np.sign(x[:, 0] * x[:, 1]) * (2 * truth - 1)
        return torch.from_numpy(x).float()

    inputs, images = features(), features()
    aucs = []
    for steps in (120, 0):
        net = ScaledNetwork(relu_attacker(12), inputs, truth, rng(), batched_recipe(500), steps)
        scores = net.scores(images)
        aucs.append(auc(scores[truth == 1], scores[truth == 0]))
    assert aucs[0] < 0.55 and aucs[1] > 0.8
