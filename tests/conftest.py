"""What many tests share: one torch thread, small textured images, a small MoCo, known images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Known
from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.nets.smallnet import SmallNet
from fedmia.seeding import torch_rng
from fedmia.ssl.base import Recipe
from fedmia.ssl.moco import MoCo, MomentumContrast

torch.set_num_threads(1)
PIXELS = 8

Textures = Callable[..., Tensor]
MakeMoCo = Callable[..., MomentumContrast]


@pytest.fixture(scope="session")
def textures() -> Textures:
    """`textures(count, seed)`: uint8 (count, 3, 8, 8), all of one distribution, all different."""

    def make(count: int, seed: int = 0) -> Tensor:
        source = Synthetic(classes=5, images=max(count, 5), pixels=PIXELS)
        return torch.from_numpy(source.load(Request(None, None, None, seed)).images[:count])

    return make


@pytest.fixture(scope="session")
def images(textures: Textures) -> Tensor:
    """Twenty images."""
    return textures(20)


@pytest.fixture(scope="session")
def known(textures: Textures) -> Known:
    """Twelve known members and ten known non-members, neither among `images`."""
    both = textures(22, seed=1)
    return Known(both[:12], both[12:])


@pytest.fixture(scope="session")
def make_moco() -> MakeMoCo:
    """`make_moco(seed=0, images=None, **options)`: an untrained MoCo on a narrow SmallNet."""

    def make(seed: int = 0, images: int | None = None, **options: Any) -> MomentumContrast:
        spec = MoCo(**{"dim": 8, "queue": 16, "temperature": 0.2, **options})
        backbone = SmallNet(width=4).build(3, PIXELS)
        recipe = Recipe((0.5,) * 3, (0.25,) * 3, images)
        return spec.build(backbone, recipe, torch_rng(seed, "test"))

    return make
