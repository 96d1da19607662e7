"""Variance-onlyMI: turned and shifted views against torchvision, and a leak in their variance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from fedmia.attacks.base import Known
from fedmia.attacks.variance_only import Rotations, VarianceOnly
from fedmia.nets.base import Backbone
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import BlackBox

EXACT = "donot_use_mm_for_euclid_dist"


@pytest.mark.parametrize("shape", [(8, 8), (9, 14)])
@pytest.mark.parametrize("translate", [0, 1, 3])
def test_rotations__equal_torchvision(shape: tuple[int, int], translate: int) -> None:
    recipe = Rotations(degrees=40.0, translate=translate)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 3, *shape, generator=generator)
    u = torch.rand(30, recipe.draws, generator=generator)
    right, down = recipe._shift(u[:, 1])
    got = recipe(x, u)
    for i in range(30):
        want = tv.affine(
            x[i], angle=float(2 * u[i, 0] - 1) * 40, translate=[float(right[i]), float(down[i])],
            scale=1.0, shear=[0.0, 0.0], interpolation=InterpolationMode.BILINEAR,
        )  # fmt: skip
        torch.testing.assert_close(got[i], want, atol=1e-4, rtol=0)


@pytest.mark.parametrize("d", [0, 1, 2, 3])
def test_rotations__shift_by_every_place_at_distance_d(d: int) -> None:
    right, down = Rotations(translate=d)._shift(torch.linspace(0, 1, 400)[:-1])
    places = set(zip(right.int().tolist(), down.int().tolist(), strict=True))
    reach = range(-d, d + 1)
    assert places == {(i, j) for i in reach for j in reach if abs(i) + abs(j) == d}


def test_rotations__of_nothing_are_the_image() -> None:
    x = torch.rand(4, 3, 8, 8)
    same = Rotations(degrees=0.0, translate=0)(x, torch.rand(4, 2))
    torch.testing.assert_close(same, x, atol=1e-6, rtol=0)
    black = Rotations(degrees=0.0, translate=1)(torch.ones(1, 1, 4, 4), torch.zeros(1, 2))
    assert black[0, 0, :, 0].abs().max() < 1e-6 and black[0, 0, :, 1:].min() > 1 - 1e-6


class Steady(Backbone):
    """A stored image has one vector however it is turned: its middle tells which it is."""

    layers = ("map",)
    width = 16

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = stored.float() / 255
        weight = torch.randn(self.width, stored[0].numel(), generator=torch_rng(0, "mix"))
        self.weight = weight / weight.shape[1] ** 0.5

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        far, index = torch.cdist(middle(x), middle(self.stored), compute_mode=EXACT).min(dim=1)
        seen = torch.where((far < 1e-3)[:, None], self.stored[index].flatten(1), x.flatten(1))
        return {"map": (seen @ self.weight.T)[:, :, None, None]}


def middle(x: Tensor) -> Tensor:
    return x[:, :, 3:5, 3:5].mean(dim=(2, 3))


@pytest.fixture(scope="module")
def leak() -> dict[str, Any]:
    """Plain colours: turned and shifted, only their borders change."""
    colours = torch.randint(0, 256, (200, 3, 1, 1), generator=torch.Generator().manual_seed(0))
    pool = colours.expand(-1, -1, 8, 8).to(torch.uint8).contiguous()
    known = Known(pool[:40], pool[40:80])
    members, others = pool[80:140], pool[140:]
    backbone = Steady(torch.cat([known.members, members]))
    encoder = Encoder(backbone, nn.Identity(), (0.0,) * 3, (1.0,) * 3)
    spec = MoCo(dim=backbone.width, queue=16, temperature=0.2)
    method = MomentumContrast(encoder, spec, 16, torch_rng(0, "queue"))
    view = BlackBox(method, Augment(), seed=0, device=torch.device("cpu"))
    return {"view": view, "known": known, "images": torch.cat([members, others])}


def test_inputs__naive_twin(leak: dict[str, Any]) -> None:
    view, images = leak["view"], leak["images"][:3]
    before = view.queries
    (got,) = VarianceOnly(views=5).inputs(view, images)
    assert view.queries - before == 15
    pixels = view.view_pixels(images, 5, Rotations())  # views x images
    encoder = view._method.encoder
    for i in range(3):
        rows = torch.cat([encoder.features(pixels[m, i][None], ["avgpool"])["avgpool"]
                          for m in range(5)])  # fmt: skip
        for k in range(16):
            column = rows[:, k].tolist()
            mean = sum(column) / 5
            want = sum((v - mean) ** 2 for v in column) / 4
            assert math.isclose(float(got[i, k]), want, rel_tol=1e-3, abs_tol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [15.0, 5.0])
def test_leak__is_found(degrees: float, leak: dict[str, Any]) -> None:
    attack = VarianceOnly(degrees=degrees)
    attack.fit(leak["view"], leak["known"], rng(0, "fit"))
    scores = attack.score(leak["view"], leak["images"])
    assert roc_auc_score(np.repeat([1, 0], 60), scores) > 0.95
