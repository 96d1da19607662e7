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
from fedmia.attacks.base import Known
from fedmia.attacks.fe_mi import FeMI
from fedmia.attacks.sd_mi import SDMI
from fedmia.options.errors import InputError
from fedmia.records import EPOCHS_CUT
from fedmia.statistics.auc import auc
from tests.attacks._norm_leak import Leak, norm_leak


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def leak() -> Leak:
    return norm_leak(known=100)


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FeMI, SDMI])
def test_choices__say_where_the_epochs_were_cut(leak: Leak, kind: type[FeMI] | type[SDMI]) -> None:
    """Of 200 known images, 50 of them anchors for SD-MI: two steps an epoch."""
    epochs = 500 if kind is FeMI else 200
    attack = kind(steps=5)
    attack.fit(leak.view, leak.known, rng())
    assert attack.choices == {EPOCHS_CUT: f"2 of {epochs}"}
    few = Known(leak.known.members[:4], leak.known.nonmembers[:4])  # one step an epoch
    for steps, want in (
        (epochs, {}),
        (0, {}),
        (epochs - 1, {EPOCHS_CUT: f"{epochs - 1} of {epochs}"}),
    ):
        attack = kind(steps=steps)
        attack.fit(leak.view, few, rng())
        assert attack.choices == want


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

    start = nn.Sequential(nn.Linear(4, 1))
    ScaledNetwork(
        start, inputs, truth, rng(), TrainingRecipe(1, None, partial(torch.optim.SGD, lr=0.0)), 0
    )
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
def test_planted_norm_leak__is_found(leak: Leak) -> None:
    assert leak.auc(FeMI()) > 0.95


@pytest.mark.slow
def test_planted_norm_leak__is_found_by_the_other_recipe(leak: Leak) -> None:
    assert leak.auc(FeMI(recipe="sdmia", steps=25)) > 0.95


def test_planted_norm_leak__is_gone_where_no_norm_changes() -> None:
    auc = norm_leak(known=20, factor=1.0).auc(FeMI(steps=100))
    assert abs(auc - 0.5) < 3 * np.sqrt(121 / 43200)


@pytest.mark.parametrize("recipe", ["lpla", "sdmia"])
def test_score__permutes_with_the_images_and_stands_alone(leak: Leak, recipe: str) -> None:
    attack = FeMI(recipe=recipe, steps=20)
    attack.fit(leak.view, leak.known, rng())
    want = attack.score(leak.view, leak.images)
    order = torch.from_numpy(rng().permutation(len(leak.images)))
    np.testing.assert_allclose(attack.score(leak.view, leak.images[order]), want[order], rtol=1e-12)
    np.testing.assert_allclose(attack.score(leak.view, leak.images[3:5]), want[3:5], rtol=1e-12)


def test_queries__one_an_image(leak: Leak) -> None:
    attack, before = FeMI(steps=1), leak.view.queries
    attack.fit(leak.view, leak.known, rng())
    attack.score(leak.view, leak.images)
    assert leak.view.queries - before == 200 + 120


def test_fit__works_from_eight_known_a_side_and_not_from_one(leak: Leak) -> None:
    members, others = leak.known.members, leak.known.nonmembers
    attack = FeMI(steps=50)
    attack.fit(leak.view, Known(members[:8], others[:8]), rng())
    assert np.isfinite(attack.score(leak.view, leak.images)).all()
    for m, o in ((1, 8), (8, 1)):
        with pytest.raises(InputError, match=f"fe-mi needs at least 2 .*got {m} and {o}"):
            attack.fit(leak.view, Known(members[:m], others[:o]), rng())


@pytest.mark.parametrize("options", [{"recipe": "x"}, {"steps": -1}, {"layer": "x"}])
def test_options__out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"FeMI\.\w+"):
        FeMI(**options)


@pytest.mark.slow
def test_leak_that_is_a_product__needs_all_epochs() -> None:
    """Members have x0 x1 > 0: no feature tells by itself, nor do 8 % of the recipe's epochs."""
    draw = np.random.default_rng(0)

    def features(count: int, sign: int) -> torch.Tensor:
        x = draw.normal(size=(count, 64))
        x[:, 1] *= np.sign(x[:, 0] * x[:, 1]) * sign
        return torch.from_numpy(x).float()

    inputs, truth = torch.cat([features(1000, 1), features(1000, -1)]), np.repeat([1, 0], 1000)
    members, others = features(1000, 1), features(1000, -1)
    aucs = []
    for steps in (640, 0):
        net = ScaledNetwork(relu_attacker(64), inputs, truth, rng(), batched_recipe(500), steps)
        aucs.append(auc(net.scores(members), net.scores(others)))
    assert aucs[0] < 0.55 and aucs[1] > 0.8
