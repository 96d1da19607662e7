"""LARS against its paper and the public code, AdamW's groups, what is kept, what noise does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.ssl._lars import LARS
from fedmia.ssl.optimizers import (
    OPTIMIZERS,
    build,
    noise_moves,
    optimizer_state,
    restore,
    set_decay,
)
from fedmia.ssl.train import Train

SHAPES = ((3, 2), (2,), (2, 1, 2), (4,), (1,))


def drawn(seed: int, shapes: Any = SHAPES) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw) for shape in shapes]


def parameters(seed: int = 0) -> list[Tensor]:
    return [w.requires_grad_() for w in drawn(seed)]


def made(name: str, weights: list[Tensor], **more: Any) -> torch.optim.Optimizer:
    options = {"lr": 0.1, "momentum": 0.8, "beta2": 0.9, "decay": 0.3}
    return build(name, weights, **(options | more))


def steps(optimizer: torch.optim.Optimizer, weights: list[Tensor], seeds: range) -> None:
    for seed in seeds:
        for weight, gradient in zip(weights, drawn(seed + 50), strict=True):
            weight.grad = gradient
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + seed)
        optimizer.step()


def length(values: list[float]) -> float:
    return math.sqrt(sum(v * v for v in values))


def public_lars(weights: list[Tensor], rates: list[float], decay: float) -> list[list[float]]:
    """moco/optimizer.py of the public MoCo v3, number by number; momentum 0.8, trust 0.001."""
    values = [w.detach().double().flatten().tolist() for w in weights]
    moving = [[0.0] * len(w) for w in values]
    for turn, lr in enumerate(rates):
        for i, gradient in enumerate(drawn(turn + 50)):
            g = gradient.double().flatten().tolist()
            if weights[i].dim() > 1:
                g = [a + decay * w for a, w in zip(g, values[i], strict=True)]
                if length(values[i]) > 0 and length(g) > 0:
                    q = 0.001 * length(values[i]) / length(g)
                    g = [q * a for a in g]
            moving[i] = [0.8 * v + a for v, a in zip(moving[i], g, strict=True)]
            values[i] = [w - lr * v for w, v in zip(values[i], moving[i], strict=True)]
    return values


def test_lars__naive_twin_of_the_public_code() -> None:
    weights = parameters()
    with torch.no_grad():
        weights[2].zero_()  # a layer without a length takes the gradient as it is
    rates = [0.1 / (1 + t) for t in range(4)]
    want = public_lars(weights, rates, 0.3)
    steps(made("lars", weights), weights, range(4))
    for weight, numbers in zip(weights, want, strict=True):
        assert weight.flatten().tolist() == pytest.approx(numbers, abs=1e-6)


def test_lars__is_algorithm_1_of_the_paper_without_decay_at_a_constant_rate() -> None:
    """v <- m v + gamma lambda (g + beta w), w <- w - v, lambda = eta |w| / (|g| + beta |w|)."""
    (weight,) = (w.requires_grad_() for w in drawn(0, [(3, 2)]))
    mine = LARS([weight], lr=0.7, momentum=0.8)
    w, v = weight.detach().double(), torch.zeros(3, 2).double()
    for turn in range(5):
        (g,) = drawn(turn + 50, [(3, 2)])
        weight.grad = g.clone()
        mine.step()
        v = 0.8 * v + 0.7 * (0.001 * w.norm() / g.double().norm()) * g.double()
        w = w - v
    torch.testing.assert_close(weight.detach().double(), w, atol=1e-6, rtol=0)


def test_lars__leaves_what_has_no_gradient() -> None:
    weights = parameters()
    before = [w.detach().clone() for w in weights]
    weights[0].square().sum().backward()
    made("lars", weights).step()
    moved = [not torch.equal(w, b) for w, b in zip(weights, before, strict=True)]
    assert moved == [True, False, False, False, False]


@pytest.mark.parametrize("name", ["adamw", "lars"])
def test_decay__leaves_biases_and_norms_alone(name: str) -> None:
    """Gradients are 0, so only the decay moves; another decay is another of the layers alone."""
    weights = parameters()
    optimizer = made(name, weights, momentum=0.0)
    for decay in (0.3, 0.1):
        set_decay(optimizer, decay)
        before = [w.detach().clone() for w in weights]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        optimizer.step()
        # LARS: the decay is all the gradient, and as long as 0.001 of the layer.
        part = {"adamw": 0.1 * decay, "lars": 0.1 * 0.001}[name]
        for weight, was in zip(weights, before, strict=True):
            want = was * (1 - part) if weight.dim() > 1 else was
            torch.testing.assert_close(weight.detach(), want)


def test_adamw__is_torchs_with_these_betas() -> None:
    weights, others = parameters(), parameters()
    steps(made("adamw", weights, decay=0.0), weights, range(3))
    plain = torch.optim.AdamW(others, lr=0.1, betas=(0.8, 0.9), weight_decay=0.0)
    steps(plain, others, range(3))
    # `steps` lowers the rate of the first group alone, here of layers and there of all.
    for one, other in zip(weights, others, strict=True):
        assert one.dim() <= 1 or torch.equal(one, other)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_restore__is_as_if_the_optimizer_had_stayed(name: str) -> None:
    whole, parts = parameters(), parameters()
    steps(made(name, whole), whole, range(4))
    first, again = made(name, parts), made(name, parts)
    steps(first, parts, range(2))
    state = {n: t.clone() for n, t in optimizer_state(first, parts).items()}
    given = {n: t.clone() for n, t in state.items()}
    restore(again, parts, given)
    steps(again, parts, range(2, 4))
    assert all(map(torch.equal, whole, parts))
    assert all(torch.equal(t, given[n]) for n, t in state.items())  # copies were restored
    counts = {"sgd": 1, "adamw": 3, "lars": 1}
    assert len(state) == counts[name] * len(SHAPES)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_noise_moves__as_noise_does(name: str) -> None:
    """300 steps of nothing but noise, from weights much longer than their walk."""
    draw = torch.Generator().manual_seed(0)
    weights = [torch.randn(s, generator=draw).mul(30) for s in ((40, 50), (500,))]
    start = [w.clone() for w in weights]
    spread = 0.002 if name == "lars" else 0.1  # so that both of its terms count
    optimizer, rates = build(name, weights, lr=1.0, momentum=0.8, beta2=0.99, decay=0.0), 0.0
    want = noise_moves(name, weights, spread, sum((t / 300) ** 2 for t in range(300)), 0.8)
    for step in range(300):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=draw) * spread
        for group in optimizer.param_groups:
            group["lr"] = step / 300
        optimizer.step()
    moved = [(w - s).norm() for w, s in zip(weights, start, strict=True)]
    assert float(torch.stack(moved).norm()) == pytest.approx(want, rel=0.1), rates


def test_rates__where_none_is_given() -> None:
    assert [Train(optimizer=o).first_rate for o in OPTIMIZERS] == [0.06, 0.001, 1.0]
    assert Train(optimizer="lars", lr=0.7).first_rate == 0.7


def public_cosine(epoch: float, base: float, warm: float, epochs: float) -> float:
    """`adjust_learning_rate` of the public code of MoCo v3 and MAE."""
    if epoch < warm:
        return base * epoch / warm
    return base * 0.5 * (1 + math.cos(math.pi * (epoch - warm) / (epochs - warm)))


def test_rate__warms_up_as_the_public_code() -> None:
    """7 steps an epoch, 12 epochs, 2.5 of them to warm up."""
    train = Train(lr=0.4, warmup_epochs=2.5)
    for step in range(7 * 12):
        want = public_cosine(step / 7, 0.4, 2.5, 12)
        assert train.rate(step, 84, 7) == pytest.approx(want, abs=1e-12)
    held_high = Train(lr=0.4, warmup_epochs=2.5, schedule="constant")
    assert [held_high.rate(s, 84, 7) for s in (0, 7, 18, 80)] == [0, pytest.approx(0.16), 0.4, 0.4]


def test_rate__steps_of_the_public_moco() -> None:
    """Divided by 10 at epochs 120 and 160 of 200."""
    train = Train(lr=0.03, schedule="steps")
    rates = [train.rate(epoch, 200) for epoch in (0, 119, 120, 159, 160, 199)]
    assert rates == pytest.approx([0.03, 0.03, 0.003, 0.003, 0.0003, 0.0003])
