"""Heads and their sensitivity against the paper's Algorithm 2, one network at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.defenses.heads.sensitivity import sample_sensitivity
from fedmia.defenses.heads.stack import HeadStack, init_heads, train_heads
from fedmia.seeding import rng

SGD = partial(torch.optim.SGD, lr=0.5, momentum=0.9, weight_decay=1e-2)


def data(count: int = 30, width: int = 4, classes: int = 3) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(5)
    inputs = F.normalize(torch.randn(count, width, generator=draw), dim=1)
    return inputs, torch.randint(classes, (count,), generator=draw)


def naive(rows: Any, widths: list[int], epochs: int, batch: int, seed: int) -> nn.Sequential:
    """One network by torch's own layers, on the first weights and the order that `train` draws."""
    inputs, labels = data()
    generator = torch.Generator().manual_seed(seed)
    first = init_heads(1, widths, generator)
    layers = [nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False)]
    for layer, weight, bias in zip(layers, first.weights, first.biases, strict=True):
        layer.load_state_dict({"weight": weight[0].T, "bias": bias[0, 0]})
    parts = [part for layer in layers for part in (layer, nn.ReLU())][:-1]
    model = nn.Sequential(*parts)
    stepper = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-2)
    rows = torch.as_tensor(rows)
    for _ in range(epochs):
        for places in torch.randperm(len(rows), generator=generator).split(batch):
            stepper.zero_grad()
            F.cross_entropy(model(inputs[rows[places]]), labels[rows[places]]).backward()
            stepper.step()
    return model


def own(widths: list[int], seed: int = 3) -> Any:
    inputs, labels = data()
    return partial(
        train_heads, inputs, labels, widths=widths, optimizer=SGD, epochs=3, batch=4, seed=seed
    )


@pytest.mark.parametrize("widths", [[4, 3], [4, 6, 5, 3]])
def test_train__each_network_is_the_naive_one_of_its_rows(widths: list[int]) -> None:
    rows = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [20, 1, 22, 3, 24, 5, 26, 7, 28, 9]])
    found = own(widths)(rows)
    inputs, _ = data()
    for i in range(2):
        model = naive(rows[i], widths, 3, 4, 3)
        with torch.no_grad():
            expected = model(inputs)
        assert torch.allclose(found.logits(inputs)[i], expected, atol=1e-5)
    each = found.logits(torch.stack([inputs[:5], inputs[5:10]]))
    assert torch.allclose(each[1], found.take([1]).logits(inputs[5:10])[0], atol=1e-6)


def test_train__equal_rows_give_equal_weights_to_the_bit() -> None:
    found = own([4, 6, 3])(torch.arange(9).repeat(3, 1)).flat()
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert not torch.equal(found[0], own([4, 6, 3], seed=4)(torch.arange(9)[None]).flat()[0])


def test_stack__plus_takes_the_order_of_flat() -> None:
    found = own([4, 6, 3])(torch.arange(9).repeat(2, 1))
    noise = torch.arange(found.flat().numel(), dtype=torch.float64).view_as(found.flat())
    moved = found.plus(noise)
    assert torch.allclose(moved.flat(), found.flat() + noise, rtol=1e-6)
    expected = found.biases[0] + noise[:, 24:30].view(2, 1, 6).float()
    assert torch.allclose(moved.biases[0], expected)


@pytest.mark.parametrize("widths", [[4, 3], [4, 5, 3]])
def test_sensitivity__equals_algorithm_2_written_out(widths: list[int]) -> None:
    members = np.array([3, 4, 8, 9, 12, 20, 21])
    draw, gaps = rng(1, "pairs"), []
    for _ in range(4):
        i, j = (int(x) for x in draw.choice(7, 2, replace=False))
        first = [k for k in range(7) if k != i]
        second = [i if k == j else k for k in first]
        assert sorted(second) == [k for k in range(7) if k != j]
        weights = []
        for kept in (first, second):
            model = naive(members[kept], widths, 3, 4, 3)
            weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]).numpy())
        gaps.append(weights[0] - weights[1])
    found = sample_sensitivity(own(widths), members, 4, rng(1, "pairs"))
    for order in (1, 2):
        expected = max(np.linalg.norm(gap, order) for gap in gaps)
        assert found[order] == pytest.approx(expected, rel=1e-4)


def test_sensitivity__largest_of_all_chunks() -> None:
    def fit(rows: Tensor) -> HeadStack:
        return HeadStack(
            (rows.double().sum(dim=1)[:, None, None],), (torch.zeros(len(rows), 1, 1),)
        )

    draw = rng(2, "pairs")
    pairs = [draw.choice(9, 2, replace=False) for _ in range(150)]
    found = sample_sensitivity(fit, np.arange(9) ** 2, 150, rng(2, "pairs"))
    assert found[1] == max(abs(int(i) ** 2 - int(j) ** 2) for i, j in pairs) == found[2]
