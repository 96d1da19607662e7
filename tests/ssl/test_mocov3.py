"""MoCo v3 against a double loop, closed forms, and the public code's order of a step."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.base import Net
from fedmia.settings.errors import InputError
from fedmia.ssl.mocov3 import MoCoV3, MoCoV3Method, batch_nce
from tests.ssl.methods import NARROW, PATCHED, apart, build, pixels, unit


def make(net: Net = NARROW, **options: Any) -> MoCoV3Method:
    return build(MoCoV3(**{"dim": 8, "bank": 6, "momentum": 0.9, **options}), net=net)


def paper_ctr(q: Tensor, k: Tensor, T: float) -> list[float]:
    """2T times the cross entropy of each row of q k' / T with its own index."""
    losses = []
    for i, query in enumerate(q.tolist()):
        dots = [sum(a * b for a, b in zip(query, key, strict=True)) for key in k.tolist()]
        powers = [math.exp(d / T) for d in dots]
        losses.append(-2 * T * math.log(powers[i] / sum(powers)))
    return losses


@pytest.mark.parametrize("T", [0.2, 1.0])
@pytest.mark.parametrize("B", [1, 2, 5])
def test_batch_nce__equals_a_double_loop(B: int, T: float) -> None:
    q, k = unit(B, 0), unit(B, 1)
    assert batch_nce(q, k, T).tolist() == pytest.approx(paper_ctr(q, k, T), abs=1e-9)


def test_losses__sum_of_both_directions_through_the_predictor() -> None:
    method, a, b = apart(make()), pixels(4, 0), pixels(4, 1)
    T = method.spec.temperature
    with torch.no_grad():
        q1, q2 = (F.normalize(method.predictor(method.encoder(x)), dim=1) for x in (a, b))
        k1, k2 = (F.normalize(method.key_encoder(x), dim=1) for x in (a, b))
    pairs = zip(paper_ctr(q1, k2, T), paper_ctr(q2, k1, T), strict=True)
    assert method.losses(a, b).tolist() == pytest.approx([x + y for x, y in pairs], abs=1e-5)


def test_steps__equal_the_public_order_update_then_keys() -> None:
    """Momentum update, keys, gradient step, as the public code does it, over several steps."""
    method, twin = make(), make()
    sgd = torch.optim.SGD(method.trainable(), lr=0.5)
    key, twins = copy.deepcopy(twin.encoder), torch.optim.SGD(twin.trainable(), lr=0.5)
    for step in range(4):
        a, b = pixels(4, 2 * step), pixels(4, 2 * step + 1)
        sgd.zero_grad()
        losses = method.losses(a, b)
        losses.mean().backward()
        sgd.step()
        method.after_step()
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), twin.encoder.parameters(), strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)
            k1, k2 = (F.normalize(key(x), dim=1) for x in (a, b))
        q1, q2 = (F.normalize(twin.predictor(twin.encoder(x)), dim=1) for x in (a, b))
        index, T = torch.arange(4), twin.spec.temperature
        loss = (
            2 * T * (F.cross_entropy(q1 @ k2.T / T, index) + F.cross_entropy(q2 @ k1.T / T, index))
        )
        twins.zero_grad()
        loss.backward()
        twins.step()
        assert losses.mean().item() == pytest.approx(loss.item(), abs=1e-4)


def test_freeze_embed__the_patch_embedding_stays_as_drawn() -> None:
    """Of query and key encoder, under weight decay too; nothing else stays."""
    method, free = make(PATCHED, freeze_embed=True), make(PATCHED)
    before = method.shared_state()
    sgd = torch.optim.SGD(method.trainable(), lr=0.5, weight_decay=0.1)
    for turn in range(2):
        sgd.zero_grad()
        method.losses(pixels(4, turn), pixels(4, turn + 5)).mean().backward()
        sgd.step()
        method.after_step()
    still = {n for n, t in method.shared_state().items() if torch.equal(t, before[n])}
    assert still == {"backbone.embed.weight", "backbone.embed.bias"}
    assert torch.equal(method.key_encoder.backbone.embed.weight, before["backbone.embed.weight"])
    assert set(free.shared_parameters()) - set(method.shared_parameters()) == still
    assert len(method.trainable()) == len(method.shared_parameters())
    assert set(method.shared_state()) == set(free.shared_state())  # averaged, as all weights are
    with pytest.raises(InputError, match="freeze_embed.*no patches"):
        make(freeze_embed=True)


def test_heads__of_the_public_code_for_vit() -> None:
    """Projector of three layers, predictor of two that ends in a norm without scale and shift."""
    method = make(layers=3, predictor_norm=True, head_norm="batch")
    kinds = [type(m).__name__ for m in method.encoder.head]
    assert kinds == [*["Linear", "BatchNorm", "ReLU"] * 2, "Linear", "BatchNorm"]
    assert method.predictor[-1].weight is None and len(method.predictor) == 5
    assert make().encoder.head[-1].weight is None and len(make().predictor) == 4
