"""Small methods and images, and what tests of several methods check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.base import Net
from fedmia.nets.smallnet import SmallNet
from fedmia.nets.vit import ViTTiny
from fedmia.seeding import torch_rng
from fedmia.settings import registry
from fedmia.ssl.base import SSL, TrainingData
from fedmia.testing.ssl import SSLCase

PATCHES = ("cae", "dinov2", "ibot", "mae", "saim")  # need a vision transformer
TRAINING_DATA = TrainingData((0.5, 0.4, 0.6), (0.25, 0.2, 0.3))
NARROW = SmallNet(width=4)
PATCHED = ViTTiny(width=8, heads=2, depth=4, patch=2)  # 16 patches of 2x2 on 8x8 pixels


def pixels(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def unit(rows: int, seed: int, width: int = 6) -> Tensor:
    """Random directions (rows, width)."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, width, generator=generator, dtype=torch.float64), dim=1)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def build(spec: SSL, seed: int = 0, images: int | None = None, net: Net = NARROW) -> Any:
    """The method of a holder of `images` images of 8x8 pixels."""
    return spec.build(
        net.build(3, 8), replace(TRAINING_DATA, images=images), torch_rng(seed, "test")
    )


def case(name: str, **options: Any) -> SSLCase:
    """A method made small, by name."""
    return SSLCase(replace(SSLCase(registry.load("ssl", name)).spec, **options))


def apart(method: Any) -> Any:
    """`method` with a momentum encoder that differs from what it follows."""
    with torch.no_grad():
        for key, _ in method.pairs().values():
            for weight in key.parameters():
                weight.mul_(1.3).add_(0.02)
    return method


def check_per_sample_gradients(method: Any) -> None:
    """Opacus' gradients of each image, on the way from loss to views as in `dpsgd`, equal those of
    the image's loss alone."""
    opacus = pytest.importorskip("opacus")
    views, weights = [pixels(3, 0), pixels(3, 1)], method.trainable()
    loop = [
        torch.autograd.grad(method.losses(a[None], b[None]).sum(), weights)
        for a, b in zip(*views, strict=True)
    ]
    hooked = opacus.GradSampleModule(method, loss_reduction="sum", strict=True)
    for view in views:
        view.requires_grad_()
    # A method of one view never looks at the other.
    method.losses(*views).sum().backward(inputs=views)
    for n, weight in enumerate(weights):
        want = torch.stack([g[n] for g in loop])
        torch.testing.assert_close(weight.grad_sample, want, atol=1e-5, rtol=1e-3)
    hooked.to_standard_module()
