"""The loss that the ascent attacks climb, and one climb."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.errors import InputError
from fedmia.ssl.base import SSLMethod

LOSSES = ("training", "algorithm1")


def read_losses(method: SSLMethod, z1: Tensor, z2: Tensor, reading: str) -> Tensor:
    """Per-image loss (B,) of encoder outputs (B, P) in the reading asked for.

    `training`: the method's own loss (temperature, positive pair in the denominator).
    `algorithm1`: lines 12-14 of Algorithm 1 (Chen et al.) to the letter: no temperature, and only
    the queue in the denominator.

    Raises:
        InputError: `algorithm1` on a method without a queue.
    """
    if reading == "training":
        return method.output_losses(z1, z2)
    queue = getattr(method, "queue", None)
    if queue is None:
        raise InputError("loss 'algorithm1' needs a method with a queue (moco, mocov2)")
    z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    positive = (z1 * z2).sum(dim=1)
    first = torch.logsumexp(z1 @ queue.to(z1.dtype).T, dim=1) - positive
    return first + torch.logsumexp(z2 @ queue.to(z2.dtype).T, dim=1) - positive


def attack_losses(method: SSLMethod, view1: Tensor, view2: Tensor, reading: str) -> Tensor:
    """`read_losses` of two views (B, C, H, W) in [0, 1], in one forward pass."""
    z1, z2 = method.encoder(torch.cat([view1, view2])).split(len(view1))
    return read_losses(method, z1, z2, reading)


def climb(method: SSLMethod, loss: Callable[[], Tensor], steps: int, lr: float) -> None:
    """`steps` of plain SGD on -mean(loss), changing the method's shared weights in place."""
    weights = method.trainable()
    for _ in range(steps):
        grads = torch.autograd.grad(loss().mean(), weights, allow_unused=True)
        with torch.no_grad():
            pairs = [(w, g) for w, g in zip(weights, grads, strict=True) if g is not None]
            if pairs:
                torch._foreach_add_([w for w, _ in pairs], [g for _, g in pairs], alpha=lr)
