"""What DINO's recipe adds to training: clipped gradients, a rising weight decay, a least rate."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.defenses.weight_decay import WeightDecay
from fedmia.ssl.optimizers import clip_gradients
from fedmia.ssl.train import Train
from tests.ssl.test_train import make_job, weights

# Clipped at 0.05: some gradients of the small MoCo are longer.
DINO = Train(
    local_epochs=2, batch_size=10, optimizer="adamw", lr=0.05, lr_end=0.01, warmup_epochs=1,
    weight_decay=0.04, weight_decay_end=0.4, clip_grad=0.05,
)  # fmt: skip


def public_schedule(first: float, last: float, total: int, warm: int = 0) -> list[float]:
    """`utils.cosine_scheduler` of the public code of DINO, step by step. Its warm-up
    reaches `first` one step earlier; `rate` follows the other public codes there."""
    rises = [first * step / warm for step in range(warm)]
    falls = range(total - warm)
    return rises + [
        last + 0.5 * (first - last) * (1 + math.cos(math.pi * i / len(falls))) for i in falls
    ]


def test_rate_and_decay__are_the_public_schedules() -> None:
    train = replace(DINO, lr=0.5, lr_end=0.1, warmup_epochs=2)
    rates = [train.rate(step, 20, 3) for step in range(20)]
    np.testing.assert_allclose(rates, public_schedule(0.5, 0.1, 20, 6), rtol=1e-12)
    decays = [train.decay(step, 20) for step in range(20)]
    np.testing.assert_allclose(decays, public_schedule(0.04, 0.4, 20), rtol=1e-12)
    assert train.rate(20, 20, 3) == train.rate(99, 20, 3) == 0.1
    assert train.decay(20, 20) == train.decay(99, 20) == 0.4
    assert {Train().decay(step, 9) for step in range(12)} == {5e-4}


def test_clip__each_tensor_by_itself() -> None:
    """The public code's loop: scale by clip / (|g| + 1e-6) where that is under 1."""
    lengths = (0.5, 5.0, 3.0 + 1e-3, 0.0)
    tensors = [torch.zeros(2, 2, requires_grad=True) for _ in lengths] + [torch.zeros(3)]
    for weight, length in zip(tensors, lengths, strict=False):
        weight.grad = torch.tensor([[0.6, 0.0], [0.0, -0.8]]) * length
    clip_gradients(tensors, 3.0)
    for weight, length in zip(tensors, lengths, strict=False):
        want = length * min(1.0, 3.0 / (length + 1e-6))
        assert weight.grad is not None and float(weight.grad.norm()) == pytest.approx(want)
    assert tensors[-1].grad is None


def test_run__equals_a_plain_loop(make_moco: Any, images: Tensor) -> None:
    method, plain = make_moco(), make_moco()
    job = make_job(method, images, DINO, total_steps=6)
    job.run()

    own = plain.trainable()
    groups = [{"params": [w for w in own if w.dim() > 1]},
              {"params": [w for w in own if w.dim() <= 1], "weight_decay": 0.0}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999))
    rates, decays = public_schedule(0.05, 0.01, 6, 2), public_schedule(0.04, 0.4, 6)
    views = list(make_job(plain, images, DINO).batches())
    assert len(views) == 4
    for step, (view1, view2) in enumerate(views):
        groups = optimizer.param_groups
        groups[0]["lr"] = groups[1]["lr"] = rates[step]
        groups[0]["weight_decay"] = decays[step]
        optimizer.zero_grad()
        plain.losses(view1, view2).mean().backward()
        for weight in own:
            weight.grad *= min(1.0, 0.05 / (float(weight.grad.norm()) + 1e-6))
        optimizer.step()
        plain.after_step()
    for name, tensor in weights(method).items():
        torch.testing.assert_close(tensor, weights(plain)[name], atol=2e-6, rtol=1e-4)


def test_weight_decay_defence__does_not_rise(make_moco: Any, images: Tensor) -> None:
    """A client's own decay stands in place of the run's, its rise included."""
    job = make_job(make_moco(), images, DINO, total_steps=6)
    WeightDecay(weight_decay=0.7).adapt(job, {})
    job.run()
    assert job.optimizer.param_groups[0]["weight_decay"] == 0.7
