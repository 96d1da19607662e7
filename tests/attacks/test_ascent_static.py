"""Static ascent: Algorithm 1's losses, the climb, and the rise against a loop over batches."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks.ascent_static import AscentStatic, attack_losses, climb, read_losses
from fedmia.attacks.base import Known
from fedmia.data.images import digests
from fedmia.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.moco import MomentumContrast
from fedmia.threat import WhiteBox

AUGMENT = Augment(hue=0.1)
CPU = torch.device("cpu")


def pixels(count: int, seed: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def naive_loss(method: MomentumContrast, x1: Tensor, x2: Tensor, reading: str) -> float:
    """Lines 7 to 14 of Algorithm 1 for one pair of views, sums written out."""

    def M(x: Tensor) -> list[float]:
        row: list[float] = F.normalize(method.encoder(x[None]).double(), dim=1)[0].tolist()
        return row

    def dot(a: list[float], b: list[float]) -> float:
        return sum(p * q for p, q in zip(a, b, strict=True))

    Q = method.queue.double().tolist()
    T = 1.0 if reading == "algorithm1" else method.spec.temperature
    q1, k1, q2, k2 = M(x1), M(x2), M(x2), M(x1)
    losses = []
    for q, k in ((q1, k1), (q2, k2)):
        above = math.exp(dot(q, k) / T)
        below = sum(math.exp(dot(q, Qi) / T) for Qi in Q)
        if reading == "training":  # InfoNCE: the positive pair is among the candidates
            below += above
        losses.append(-math.log(above / below))
    return losses[0] + losses[1]


@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_attack_losses__lines_12_to_14(make_moco: Any, reading: str) -> None:
    method, a, b = make_moco(), pixels(5, 0), pixels(5, 1)
    got = attack_losses(method, a, b, reading)
    want = [naive_loss(method, x1, x2, reading) for x1, x2 in zip(a, b, strict=True)]
    np.testing.assert_allclose(got.detach(), want, atol=1e-5)


@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_attack_losses__one_forward_equals_two(make_moco: Any, reading: str) -> None:
    method, a, b = make_moco(), pixels(5, 0), pixels(5, 1)
    want = read_losses(method, method.encoder(a), method.encoder(b), reading)
    torch.testing.assert_close(attack_losses(method, a, b, reading), want, atol=1e-5, rtol=1e-5)


def test_attack_losses__algorithm1_needs_a_queue(make_moco: Any) -> None:
    method = make_moco()
    del method.bank
    with pytest.raises(InputError, match="'algorithm1' needs a method with a queue"):
        attack_losses(method, pixels(2, 0), pixels(2, 1), "algorithm1")


@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_climb__raises_the_loss(make_moco: Any, reading: str) -> None:
    method, a, b = make_moco(), pixels(6, 0), pixels(6, 1)
    read = [float(attack_losses(method, a, b, reading).detach().mean())]
    for _ in range(5):
        climb(method, lambda: attack_losses(method, a, b, reading), 1, 0.02)
        read.append(float(attack_losses(method, a, b, reading).detach().mean()))
    assert all(later > earlier for earlier, later in zip(read, read[1:], strict=False))


def test_climb__is_plain_sgd_uphill(make_moco: Any) -> None:
    method, a, b = make_moco(), pixels(4, 0), pixels(4, 1)
    plain = copy.deepcopy(method)
    climb(method, lambda: attack_losses(method, a, b, "training"), 3, 0.1)
    for _ in range(3):
        plain.zero_grad()
        plain.probe_losses(a, b).mean().backward()
        for weight in plain.encoder.parameters():
            weight.data += 0.1 * weight.grad
    for got, want in zip(method.encoder.parameters(), plain.encoder.parameters(), strict=True):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)
    assert all(w.grad is None for w in method.parameters())
    for got, want in zip(method.key_encoder.parameters(), plain.key_encoder.parameters(),
                         strict=True):  # fmt: skip
        assert torch.equal(got, want)


def fitted(known: Known, view: WhiteBox, **options: Any) -> AscentStatic:
    attack = AscentStatic(**options)
    attack.fit(view, known, np.random.default_rng(0))
    return attack


@pytest.mark.parametrize("negatives", ["held", "queue"])
@pytest.mark.parametrize("reading", ["training", "algorithm1"])
def test_rise__parameters_equals_a_loop_over_batches(
    make_moco: Any,
    images: Tensor,
    known: Known,
    held: Tensor,
    serving: Tensor,
    reading: str,
    negatives: str,
) -> None:
    method = make_moco()
    view = WhiteBox(copy.deepcopy(method), AUGMENT, seed=0, device=CPU, held=held)
    # An untrained encoder gives all images nearly one key, where long steps jump over the top.
    lr = 0.01 if negatives == "held" else 0.05
    attack = fitted(
        known, view, steps=2, batch=8, pairs=2, loss=reading, lr=lr, negatives=negatives
    )
    before, after = attack.rise(view, images)
    if negatives == "held":  # keys of the released model: the bank stays while weights climb
        method.fill_bank(serving.float() / 255)

    names = digests(images.numpy())
    order = sorted(range(20), key=lambda i: names[i])
    views = view.view_pixels(images, 4)
    for start in (0, 8, 16):
        batch = order[start : start + 8]
        model = copy.deepcopy(method)

        def losses(model: MomentumContrast = model, batch: list[int] = batch) -> Tensor:
            a = attack_losses(model, views[0, batch], views[2, batch], reading)
            b = attack_losses(model, views[1, batch], views[3, batch], reading)
            return (a + b) / 2

        first = losses().detach().numpy()
        for _ in range(2):
            model.zero_grad()
            losses().mean().backward()
            for weight in model.encoder.parameters():
                weight.data += lr * weight.grad
        np.testing.assert_allclose(before[batch], first, atol=1e-5)
        np.testing.assert_allclose(after[batch], losses().detach().numpy(), atol=1e-4)
    assert after.mean() > before.mean()
    np.testing.assert_array_equal(attack.score(view, images), before - after)


def test_rise__pixels_is_equation_8(
    make_moco: Any, images: Tensor, known: Known, held: Tensor, serving: Tensor
) -> None:
    method = make_moco()
    view = WhiteBox(copy.deepcopy(method), AUGMENT, seed=0, device=CPU, held=held)
    method.fill_bank(serving.float() / 255)
    attack = fitted(known, view, steps=3, pairs=1, ascend="pixels", lr=0.2)
    before, after = attack.rise(view, images)
    views = view.view_pixels(images, 2)
    for i in (0, 9, 19):
        x = [views[0, i][None].clone(), views[1, i][None].clone()]
        first = float(method.probe_losses(*x).detach())
        for _ in range(3):  # x(t+1) = x(t) + alpha grad J(x(t))
            x = [v.detach().requires_grad_(True) for v in x]
            slopes = torch.autograd.grad(method.probe_losses(x[0], x[1]).sum(), x)
            x = [v + 0.2 * slope for v, slope in zip(x, slopes, strict=True)]
        assert before[i] == pytest.approx(first, abs=1e-5)
        assert after[i] == pytest.approx(float(method.probe_losses(*x).detach()), abs=1e-4)
    assert (after > before).all()


@pytest.mark.parametrize("ascend", ["parameters", "pixels"])
def test_rise__never_pools_batches(
    make_moco: Any, images: Tensor, known: Known, held: Tensor, ascend: str
) -> None:
    """Each batch climbs from the released model: what other batches hold changes nothing."""
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    attack = fitted(known, view, batch=5, ascend=ascend)
    names = digests(images.numpy())
    order = sorted(range(20), key=lambda i: names[i])
    whole = attack.score(view, images)
    third = order[10:15]
    np.testing.assert_allclose(attack.score(view, images[third]), whole[third], atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"steps": 1, "pairs": 3, "batch": 7},
                                     {"ascend": "pixels"}, {"negatives": "queue"}])  # fmt: skip
def test_queries__are_the_bank_then_before_each_step_and_after(
    make_moco: Any, images: Tensor, known: Known, held: Tensor, options: dict[str, Any]
) -> None:
    view = WhiteBox(make_moco(), AUGMENT, seed=0, device=CPU, held=held)
    attack = fitted(known, view, **options)
    assert view.queries == 0
    attack.score(view, images)
    bank = 14 if attack.negatives == "held" else 0
    assert view.queries == 2 * attack.pairs * 20 * (attack.steps + 2) + bank
