"""SupervisedMI and Variance-onlyMI: what their network reads of an image, and a leak in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from fedmia.attacks.base import Known
from fedmia.attacks.supervised_mi import SupervisedMI
from fedmia.attacks.variance_only import Rotations, VarianceOnly
from fedmia.nets.base import Backbone
from fedmia.ssl.augment import Augment
from fedmia.statistics.auc import auc
from fedmia.threat import Shadow
from tests.attacks.planted import EXACT, auc_of, chance, mixing, view_of

# -- SupervisedMI


Textures = Callable[..., Tensor]


@pytest.mark.parametrize("layer", ["avgpool", "encoder"])
def test_inputs__are_the_features_of_the_plain_image(
    layer: str, make_moco: Any, images: Tensor
) -> None:
    moco = make_moco()
    (got,) = SupervisedMI(layer=layer).inputs(view_of(moco), images)
    with torch.no_grad():
        want = moco.eval().encoder.features(images.float() / 255, [layer])[layer]
    torch.testing.assert_close(got, want)


class Marked(Backbone):
    """A stored image's vector points along one direction, as no other's does."""

    layers = ("map",)
    width = 12

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.stored = stored.flatten(1).float() / 255
        self.weight = mixing(self.width, self.stored.shape[1])
        self.weight[5] /= 5

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        known = torch.cdist(flat, self.stored, compute_mode=EXACT).amin(dim=1) < 1e-3
        out = (flat - 0.5) @ self.weight.T
        out[:, 5] += known.float()
        return {"map": out[:, :, None, None]}


def test_leak__in_the_features_is_found(textures: Textures) -> None:
    pool = textures(320, seed=8)
    known, members, others = Known(pool[:80], pool[80:160]), pool[160:240], pool[240:]
    view, attack = view_of(Marked(torch.cat([known.members, members]))), SupervisedMI()
    assert auc_of(attack, view, known, members, others) > 0.95
    poser = view_of(Marked(known.members))  # none of them stored
    assert auc(*(attack.score(poser, side) for side in (members, others))) == chance(80, 80)


@pytest.mark.slow
def test_shadow__fits_on_the_attackers_own_encoders(textures: Textures, known: Known) -> None:
    pool, target = textures(160, seed=9), textures(160, seed=10)
    shadow = Shadow(view_of(Marked(pool[:80])), pool[:80], pool[80:])
    view, attack = view_of(Marked(target[:80]), shadows=[shadow]), SupervisedMI(setting="shadow")
    assert not attack.learns
    assert auc_of(attack, view, known, target[:80], target[80:]) > 0.95
    assert view.queries == 160


# -- Variance-onlyMI


def shifts(d: int, u: Tensor) -> list[tuple[int, int]]:
    """Pixels to the right and down of views with these uniforms: where a bright pixel goes."""
    pixel = torch.zeros(len(u), 1, 9, 9)
    pixel[:, 0, 4, 4] = 1
    moved = Rotations(degrees=0.0, translate=d)(pixel, torch.stack([u, u], dim=1)).flatten(1)
    return [(int(at % 9) - 4, int(at // 9) - 4) for at in moved.argmax(dim=1)]


@pytest.mark.parametrize("shape", [(8, 8), (9, 14)])
@pytest.mark.parametrize("translate", [0, 1, 3])
def test_rotations__equal_torchvision(shape: tuple[int, int], translate: int) -> None:
    recipe = Rotations(degrees=40.0, translate=translate)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 3, *shape, generator=generator)
    u = torch.rand(30, recipe.draws, generator=generator)
    got = recipe(x, u)
    for i, shift in enumerate(shifts(translate, u[:, 1])):
        want = tv.affine(
            x[i], angle=float(2 * u[i, 0] - 1) * 40, translate=list(shift), scale=1.0,
            shear=[0.0, 0.0], interpolation=InterpolationMode.BILINEAR,
        )  # fmt: skip
        torch.testing.assert_close(got[i], want, atol=1e-4, rtol=0)


@pytest.mark.parametrize("d", [0, 1, 2, 3])
def test_rotations__shift_by_every_place_at_distance_d(d: int) -> None:
    reach = range(-d, d + 1)
    places = set(shifts(d, torch.linspace(0, 1, 400)[:-1]))
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
        self.weight = mixing(self.width, stored[0].numel())

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
    known, members, others = Known(pool[:40], pool[40:80]), pool[80:140], pool[140:]
    view = view_of(Steady(torch.cat([known.members, members])), Augment())
    return {"view": view, "known": known, "members": members, "others": others}


def test_inputs__naive_twin(leak: dict[str, Any]) -> None:
    view, images = leak["view"], leak["members"][:3]
    before = view.queries
    (got,) = VarianceOnly(views=5).inputs(view, images)
    assert view.queries - before == 15
    pixels = view.view_pixels(images, 5, Rotations())  # views x images
    encoder = view.copy_method().encoder
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
    assert auc_of(VarianceOnly(degrees=degrees), **leak) > 0.95
