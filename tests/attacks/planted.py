"""Encoders in which a leak is planted, views of them, and what an attack finds of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedmia.attacks.base import Attack, Known
from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.nets.base import Backbone
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder, SSLMethod
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import BlackBox, WhiteBox

CPU = torch.device("cpu")
NOBODY = Known(torch.empty(0), torch.empty(0))
EXACT = "donot_use_mm_for_euclid_dist"
# Brightness and contrast change a little and nothing else: a view stays nearer to its own image.
MILD = Augment(
    crop_min=1, ratio_min=1, ratio_max=1, flip=0, brightness=0.1, contrast=0.1,
    saturation=0, hue=0, jitter_p=1, gray_p=0,
)  # fmt: skip
# Both views of an image are the image.
PLAIN = Augment(
    crop_min=1, ratio_min=1, ratio_max=1, flip=0, brightness=0, contrast=0, saturation=0, hue=0,
    jitter_p=0, gray_p=0,
)  # fmt: skip

# Options under which attacks that train or climb for long take a tenth of their time.
BRISK: dict[str, dict[str, Any]] = {
    "ascent-climb": {"pairs": 1, "steps": 3},
    "ascent-static": {"pairs": 1},
    "baseline-c": {"downstream_images": 100, "epochs": 60, "rate": 1e-3},
    "encodermi-s": {"epochs": 40, "rate": 3e-3, "batch_size": 64},
    "encodermi-v": {"epochs": 60, "rate": 1e-3},
    "fe-mi": {"steps": 100},
    "partcrop": {"crops": 32},
    "partcrop-cosine": {"crops": 32},
    "partcrop-energy": {"crops": 32},
    "partcrop-logistic": {"crops": 32},
    "partcrop-v2": {"crops": 32},
    "sd-mi": {"steps": 50},
}


def brisk(name: str, **options: Any) -> Attack:
    attack: Attack = registry.build("attack", name, BRISK.get(name, {}) | options)
    return attack


def mixing(width: int, inputs: int, seed: int = 0) -> Tensor:
    """(width, inputs) random weights, which keep the size of what they mix."""
    return torch.randn(width, inputs, generator=torch_rng(seed, "mix")) / inputs**0.5


def method_of(
    backbone: Backbone, seed: int = 0, mean: float = 0.0, std: float = 1.0
) -> MomentumContrast:
    """A method that answers with the backbone's own features."""
    encoder = Encoder(backbone, nn.Identity(), (mean,) * 3, (std,) * 3)
    spec = MoCo(dim=backbone.width, queue=16, temperature=0.2)
    return MomentumContrast(encoder, spec, 16, torch_rng(seed, "queue"))


def view_of(
    model: Backbone | SSLMethod,
    augment: Augment = MILD,
    kind: type[BlackBox] = WhiteBox,
    **more: Any,
) -> Any:
    method = method_of(model) if isinstance(model, Backbone) else model
    return kind(method, augment, seed=0, device=CPU, **more)


def fitted(attack: Attack, view: Any, known: Known = NOBODY) -> Any:
    attack.fit(view, known, rng(0, "fit"))
    return attack


def auc_of(attack: Attack, view: Any, known: Known, members: Tensor, others: Tensor) -> float:
    """Of the attack, fitted anew."""
    truth = np.repeat([1, 0], [len(members), len(others)])
    scores = fitted(attack, view, known).score(view, torch.cat([members, others]))
    return float(roc_auc_score(truth, scores))


def chance(members: int, others: int, repeats: int = 1) -> Any:
    """What equals the mean AUC of so many images of which nothing is known: three sigma."""
    sigma = math.sqrt((members + others + 1) / (12 * members * others * repeats))
    return pytest.approx(0.5, abs=3 * sigma)


# -- a leak in the length of features, and in nothing else

REACH = 1.2  # of a stored image, in pixel space: its views, and no other image


class Quieter(Backbone):
    """Features of stored images, and of views of them, are `factor` times as long: the direction,
    hence every cosine, is that of any image."""

    layers = ("layer1", "layer2", "layer3", "layer4")
    width = 32

    def __init__(self, stored: Tensor, factor: float) -> None:
        super().__init__()
        self.stored, self.factor = stored.flatten(1).float() / 255, factor
        self.mix = mixing(self.width, self.stored.shape[1])

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        near = torch.cdist(flat, self.stored).amin(dim=1) < REACH
        out = torch.relu(1 + torch.sin(15 * flat) @ self.mix.T)
        out = torch.where(near[:, None], self.factor * out, out)
        return dict.fromkeys(self.layers, out[:, :, None, None])


@dataclass
class Leak:
    """A view of the encoder, known images, and images of which the first half are members."""

    view: WhiteBox
    known: Known
    images: Tensor

    def auc(self, attack: Attack) -> float:
        return auc_of(attack, self.view, self.known, *self.images.chunk(2))


def norm_leak(known: int, count: int = 60, factor: float = 0.7) -> Leak:
    """`count` members and non-members of one distribution, and `known` others of each side."""
    source = Synthetic(classes=5, images=2 * (count + known), pixels=8)
    pool = torch.from_numpy(source.load(Request(None, None, None, 11)).images)
    members, others, first, second = pool.split([count, count, known, known])
    view = view_of(Quieter(torch.cat([members, first]), factor))
    return Leak(view, Known(first, second), torch.cat([members, others]))
