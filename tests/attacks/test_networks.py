"""The networks that read features: their training, Fe-MI's and SD-MI's recipes, SD-MI's anchors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmia.attacks import _mlp
from fedmia.attacks._mlp import init_uniform, logits, mlp, train_logits
from fedmia.attacks._selector import (
    AnchorSelector,
    ScaledNetwork,
    TrainingRecipe,
    halving_factor,
    relu_attacker,
    tanh_attacker,
)
from fedmia.attacks.fe_mi import RECIPES
from fedmia.attacks.sd_mi import SDMI, choose_anchors, distances
from fedmia.records import EPOCHS_CUT
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from tests.attacks.planted import Leak, fitted, norm_leak


class Watched(nn.Linear):
    """A layer that notes the threads that compute it."""

    def __init__(self, idle: int) -> None:
        super().__init__(4, 1)
        self.idle = nn.Parameter(torch.zeros(idle))
        self.threads: set[int] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.threads.add(torch.get_num_threads())
        return super().forward(x)


@pytest.mark.parametrize(("more", "within"), [(0, 1), (1, 3)])
def test_train_logits__one_thread_where_small(more: int, within: int) -> None:
    """Four images a step, five weights and idle ones; outside as many threads as before."""
    model = Watched(_mlp.SMALL // 4 - 5 + more)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        train_logits(
            model, torch.rand(8, 4), np.repeat([1, 0], 4), np.random.default_rng(0),
            optimizer=lambda w: torch.optim.SGD(w, lr=0.1), epochs=2, batch=4,
        )  # fmt: skip
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert model.threads == {within}


def test_logits__of_equal_rows_are_equal_wherever_they_stand() -> None:
    """Or a tie with the threshold is decided by the place in a product of matrices."""
    model = mlp((11, 256, 256))
    init_uniform(model, torch.Generator().manual_seed(0))
    model = model.double().requires_grad_(False)
    row = (torch.arange(11) % 3 == 0).double()
    outputs = {float(x) for n in (1, 2, 3, 5, 37) for x in logits(model, row.expand(n, 11))}
    assert len(outputs) == 1


# -- SD-MI


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def leak() -> Leak:
    return norm_leak(known=40)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("count", [3, 60])
def test_distances__naive_twin(count: int) -> None:
    """Eq. 10, and the squares that the code of the paper takes."""
    vectors, anchors = normal(count, 5), normal(4, 5) + 1
    want = [
        [sum((x - y) ** 2 for x, y in zip(v, a, strict=True)) for a in anchors.double().tolist()]
        for v in vectors.double().tolist()
    ]
    np.testing.assert_allclose(distances(vectors, anchors, "squared"), want, rtol=1e-9)
    np.testing.assert_allclose(distances(vectors, anchors, "euclidean"), np.sqrt(want), rtol=1e-9)


def test_selector__naive_twin() -> None:
    """Eq. 11 with the layers of the code: Linear(D, D), ReLU, Linear(D, A), ReLU, product."""
    attacker = nn.Linear(3, 1)
    net = AnchorSelector(3, 2, attacker)
    inputs = normal(6, 5)
    first, second = net.selector[0], net.selector[2]

    def linear(layer: Any, x: list[float]) -> list[float]:
        rows, biases = layer.weight.tolist(), layer.bias.tolist()
        return [sum(w * v for w, v in zip(r, x, strict=True)) + b
                for r, b in zip(rows, biases, strict=True)]  # fmt: skip

    want = []
    for row in inputs.tolist():
        hidden = [max(0.0, v) for v in linear(first, row[3:])]
        weights = [max(0.0, v) for v in linear(second, hidden)]
        want.append(linear(attacker, [s * w for s, w in zip(row[:3], weights, strict=True)]))
    np.testing.assert_allclose(net(inputs).detach(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("members", "others", "count", "want"),
    [(8, 8, 0, (2, 2)), (40, 40, 0, (10, 10)), (40, 40, 13, (6, 7)), (30, 10, 8, (6, 2)),
     (5000, 5000, 0, (1000, 1000)), (3, 3, 0, (0, 1))],
)  # fmt: skip
def test_choose_anchors__takes_of_each_side_its_share(
    members: int, others: int, count: int, want: tuple[int, int]
) -> None:
    truth = np.repeat([1, 0], [members, others])
    chosen = choose_anchors(truth, count, rng())
    assert (int(chosen[:members].sum()), int(chosen[members:].sum())) == want
    np.testing.assert_array_equal(chosen, choose_anchors(truth, count, rng()))
    if members == 40:
        assert not np.array_equal(chosen, choose_anchors(truth, count, rng(1)))


@pytest.mark.parametrize(
    ("members", "others", "count"), [(2, 2, 0), (8, 8, 13), (8, 1, 2), (0, 9, 0)]
)
def test_choose_anchors__too_few_left_is_refused(members: int, others: int, count: int) -> None:
    with pytest.raises(InputError, match=f"sd-mi: {members} known members and {others} .* beside"):
        choose_anchors(np.repeat([1, 0], [members, others]), count, rng())


@pytest.mark.parametrize("selector", [False, True])
def test_fit__anchors_are_apart_from_what_is_fitted_and_scored(leak: Leak, selector: bool) -> None:
    images, truth = leak.known.both()
    stream, vectors = rng(), leak.view.embed_plain(images, "avgpool")
    chosen = choose_anchors(truth, 0, stream)
    assert chosen.sum() == 20 and truth[~chosen].sum() == 30

    def inputs(rows: Tensor) -> Tensor:
        gaps = distances(rows, vectors[chosen], "squared")
        assert float(gaps.min()) > 1e-4
        return torch.cat([gaps, rows.double()], dim=1) if selector else gaps

    net: nn.Module = tanh_attacker(20)
    net = AnchorSelector(20, vectors.shape[1], net) if selector else net
    recipe = TrainingRecipe(200, 128)
    model = ScaledNetwork(net, inputs(vectors[~chosen]), truth[~chosen], stream, recipe, 1)
    want = model.scores(inputs(leak.view.embed_plain(leak.images, "avgpool")))
    attack = SDMI(selector=selector, steps=1)
    attack.fit(leak.view, leak.known, rng())
    np.testing.assert_allclose(attack.score(leak.view, leak.images), want, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "epochs"),
    [
        ({}, "5 of 200"),
        ({"selector": True}, "5 of 200"),
        ({"recipe": "sdmia"}, "5 of 30,000"),
        ({"recipe": "sdmia", "selector": True}, "5 of 5,000"),
    ],
)
def test_recipe__epochs_are_those_of_its_paper(
    leak: Leak, options: dict[str, Any], epochs: str
) -> None:
    attack = fitted(SDMI(steps=5, **options), leak.view, leak.known)
    assert attack.choices == {EPOCHS_CUT: epochs}


class Enough(Exception):
    """So many epochs were trained that they are not cut."""


class Impatient(np.random.Generator):
    """It orders the images of 1,000 epochs, and both sides of the known ones for the anchors."""

    left = 1002

    def permutation(self, *args: Any, **more: Any) -> Any:
        if not self.left:
            raise Enough
        self.left -= 1
        return super().permutation(*args, **more)


@pytest.mark.slow
def test_steps__the_selector_trains_all_its_epochs_by_default() -> None:
    few = norm_leak(known=3, count=1)

    def fit(**options: Any) -> dict[str, Any]:
        attack = SDMI(recipe="sdmia", **options)
        attack.fit(few.view, few.known, Impatient(np.random.PCG64(0)))
        return attack.choices

    assert fit() == {EPOCHS_CUT: "1,000 of 30,000"}
    for all_epochs in ({"selector": True}, {"steps": 0}):
        with pytest.raises(Enough):
            fit(**all_epochs)


# -- what Fe-MI and SD-MI share


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
    batches, whole = (recipe for _, recipe in RECIPES.values())
    assert batches.batch == 128 and whole.batch is None and whole.rate is halving_factor
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
    recipe = TrainingRecipe(6, None, lambda epoch: 0.5 ** (epoch // 2))
    net = nn.Sequential(nn.Linear(4, 1))
    got = ScaledNetwork(net, inputs, truth, rng(), recipe, 0)
    start, still = nn.Sequential(nn.Linear(4, 1)), partial(torch.optim.SGD, lr=0.0)
    short = ScaledNetwork(start, inputs, truth, rng(), TrainingRecipe(6, None, optimizer=still), 5)
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
