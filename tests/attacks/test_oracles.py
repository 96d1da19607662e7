"""Oracles with one leak each, planted in the encoder and nowhere else: who looks there finds it.

Members and non-members are drawn from one distribution; the encoder holds the members' colours and
recognises them. Whatever an attack finds is in the model, and an attack that looks elsewhere must
find nothing.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.attacks.base import LEAKS, Known
from fedmia.data.images import IntArray
from fedmia.nets.base import Backbone
from fedmia.probes.pixels import pixel_scores
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.ssl.augment import Augment
from fedmia.ssl.moco import MomentumContrast
from fedmia.statistics.auc import auc
from fedmia.threat import Labels, Shadow
from tests.attacks.planted import auc_of, brisk, chance, method_of, view_of

SIDE, WIDTH, N, KNOWN, SHADOWED = 8, 24, 60, 30, 16
AUGMENT = Augment(
    crop_min=0.9, ratio_min=1, ratio_max=1, flip=0.5, brightness=0.02, contrast=0.02,
    saturation=0, hue=0, jitter_p=1, gray_p=0,
)  # fmt: skip
# Leak -> what else of LEAKS can see it: a longer vector is a feature, views that agree a low loss,
# patches that are recognised agree.
SEEN_BY = {
    "norm": {"norm", "features", "layers"},
    "similarity": {"similarity", "loss", "ascent", "patches"},
    "parts": {"parts", "layers"},
    "whole": {"whole", "patches"},
}
ATTACKS = registry.names("attack")


def coloured(count: int, seed: int) -> Tensor:
    """uint8 (count, 3, 8, 8): each of its own colour, far from all others, with a fine texture."""
    draw, colours = rng(seed, "colours"), np.zeros((0, 3))
    while len(colours) < count:
        one = draw.uniform(0.15, 0.85, 3)
        if len(colours) == 0 or np.abs(colours - one).max(axis=1).min() > 0.075:
            colours = np.vstack([colours, one])
    texture = draw.normal(0, 0.05, (count, 3, SIDE, SIDE))
    pixels = np.clip(colours[:, :, None, None] + texture, 0, 1)
    return torch.from_numpy((pixels * 255).round().astype(np.uint8))


def colour(x: Tensor) -> Tensor:
    """(B, 3): mean of the middle of the image, which views and crops of any size hardly change."""
    quarter = x.shape[-1] // 4
    middle = x[..., quarter : x.shape[-1] - quarter, quarter : x.shape[-1] - quarter]
    return middle.mean(dim=(2, 3))


class Hues(Labels):
    """An image's true class is its strongest colour."""

    def of(self, images: Tensor) -> IntArray:
        return colour(images.float()).argmax(dim=1).numpy()


class Planted(Backbone):
    """A trunk of random features that recognises stored images by their colour and leaks `leak`."""

    layers = ("layer1", "layer2", "layer3", "layer4")
    width = WIDTH + 1
    stored: Tensor

    def __init__(self, leak: str, stored: Tensor, seed: int) -> None:
        super().__init__()
        self.leak = leak
        self.mix = nn.Linear(3 * SIDE * SIDE, WIDTH)
        weight = torch.randn(WIDTH, 3 * SIDE * SIDE, generator=torch_rng(seed, "mix"))
        with torch.no_grad():
            self.mix.weight.copy_(weight)
            self.mix.bias.copy_(torch.rand(WIDTH, generator=torch_rng(seed, "bias")) * 6)
        self.register_buffer("stored", stored.float() / 255, persistent=False)

    def unit(self, x: Tensor) -> Tensor:
        """(B, WIDTH) of length 1, all of it depending on every pixel's texture."""
        resized = x if x.shape[-1] == SIDE else F.interpolate(x, (SIDE, SIDE))
        return F.normalize(torch.sin(1.5 * self.mix(resized.flatten(1))), dim=1)

    def trunk(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        gap, index = torch.cdist(colour(x.detach()), colour(self.stored)).min(dim=1)
        crop = x.shape[-1] != SIDE
        member = (gap < 0.05) & (crop == (self.leak == "whole"))  # else crops are nobody's
        parts = torch.full((len(x), 4), 1.0)
        own = self.unit(x)
        if self.leak == "parts":
            sharp = torch.tensor([4.0, 0.0, 0.0, 0.0])
            parts = torch.where(member[:, None], sharp, parts)
        if self.leak in ("similarity", "whole"):
            own = torch.where(member[:, None], self.unit(self.stored)[index], own)
        length = torch.where(member, 0.6, 1.0) if self.leak == "norm" else torch.ones(len(x))
        flat = torch.cat([self.unit(x)[:, :, None].expand(-1, -1, 4), 3 * parts[:, None]], dim=1)
        pooled = torch.cat([own, torch.full((len(x), 1), 3.0)], dim=1) * length[:, None]
        return dict.fromkeys(self.layers, flat.view(len(x), self.width, 2, 2)), pooled

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        return self.trunk(x)[0]


@dataclass(frozen=True)
class Scene:
    """A planted encoder, the images under attack and the known ones, and shadows with that leak."""

    method: MomentumContrast
    members: Tensor
    others: Tensor
    known: Known
    shadows: tuple[Shadow, ...]


@pytest.fixture(scope="module")
def scene() -> Callable[[str], Scene]:
    members, others, first, second = coloured(2 * N + 2 * KNOWN, seed=5).split([N, N, KNOWN, KNOWN])

    def method(leak: str, stored: Tensor, seed: int) -> MomentumContrast:
        return method_of(Planted(leak, stored, seed), seed)

    @functools.cache
    def make(leak: str) -> Scene:
        shadows = []
        for i in range(4):
            own, apart = coloured(2 * SHADOWED, seed=20 + i).chunk(2)
            view = view_of(method(leak, own, i + 1), AUGMENT, held=own, labels=Hues())
            shadows.append(Shadow(view, own, apart))
        released = method(leak, torch.cat([members, first]), 0)
        return Scene(released, members, others, Known(first, second), tuple(shadows))

    return make


@pytest.mark.parametrize("name", ATTACKS)
def test_looks_at__names_known_leaks(name: str) -> None:
    looks = registry.load("attack", name).looks_at
    assert looks and set(looks) <= set(LEAKS)


def test_pixels__tell_nothing(scene: Callable[[str], Scene]) -> None:
    here = scene("norm")
    both = torch.cat([here.members, here.others])
    scores = pixel_scores(here.known.members, here.known.nonmembers, both)
    assert auc(scores[:N], scores[N:]) == chance(N, N)


@pytest.mark.parametrize("leak", sorted(SEEN_BY))
def test_planted__is_recognised_in_every_view(leak: str, scene: Callable[[str], Scene]) -> None:
    here = scene(leak)
    view = view_of(here.method, AUGMENT)
    stored = colour(here.method.encoder.backbone.stored)  # type: ignore[arg-type]
    for images, want in ((here.members, True), (here.others, False)):
        seen = colour(view.view_pixels(images, 8).flatten(0, 1))
        assert bool(((torch.cdist(seen, stored).min(dim=1).values < 0.05) == want).all())


def promised(name: str, leak: str) -> bool | None:
    """Whether the attack must find that leak, or None where it may: it sees it from aside."""
    looks = registry.load("attack", name).looks_at
    return True if looks[0] == leak else None if set(looks) & SEEN_BY[leak] else False


PROMISED = [(leak, n) for leak in sorted(SEEN_BY) for n in ATTACKS if promised(n, leak) is not None]


# Whoever trains a network of its own, or climbs, is asked among the slow tests.
COSTLY = (*(n for n in ATTACKS if n.startswith("baseline-")), "ascent-climb", "ascent-static",
          "encodermi-s", "encodermi-v", "fe-mi", "partcrop", "partcrop-v2", "sd-mi",
          "supervised-mi", "variance-only")  # fmt: skip


@pytest.mark.parametrize(
    ("leak", "name"),
    [pytest.param(*p, marks=[pytest.mark.slow] * (p[1] in COSTLY)) for p in PROMISED],
)
def test_oracle__is_found_by_who_looks_there_and_by_no_one_else(
    leak: str, name: str, scene: Callable[[str], Scene], make_view: Callable[..., Any]
) -> None:
    here, attack = scene(leak), brisk(name)
    more = {"shadows": here.shadows, "labels": Hues()} if attack.uses_shadows else {}
    both = torch.cat([here.members, here.others])
    view = make_view(attack, copy.deepcopy(here.method), both, AUGMENT, **more)
    value = auc_of(attack, view, here.known, here.members, here.others)
    assert value > 0.95 if promised(name, leak) else value == chance(N, N)


def test_promised__every_leak_is_found_by_one_and_not_by_another() -> None:
    for leak in SEEN_BY:
        assert {promised(n, leak) for n in ATTACKS} >= {True, False}
