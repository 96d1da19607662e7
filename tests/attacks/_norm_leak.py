"""An encoder that betrays its members by the length of their features, and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedmia.attacks.base import Attack, Known
from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.nets.base import Backbone
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import BlackBox

# Brightness and contrast change a little and nothing else: a view stays nearer to its own image.
AUGMENT = Augment(
    crop_min=1, ratio_min=1, ratio_max=1, flip=0, brightness=0.1, contrast=0.1,
    saturation=0, hue=0, jitter_p=1, gray_p=0,
)  # fmt: skip


class Quieter(Backbone):
    """Features of stored images, and of views of them, are `factor` times as long: the direction,
    hence every cosine, is that of any image."""

    layers = ("layer1", "layer2", "layer3", "layer4")
    stored: Tensor

    def __init__(self, stored: Tensor, width: int, factor: float, reach: float = 1.2) -> None:
        super().__init__()
        self.width, self.factor, self.reach = width, factor, reach
        inputs = stored[0].numel()
        weight = torch.randn(width, inputs, generator=torch_rng(0, "mix")) / inputs**0.5
        self.register_buffer("mix", weight, persistent=False)
        self.register_buffer("stored", stored.flatten(1).float() / 255, persistent=False)

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        near = torch.cdist(flat, self.stored).amin(dim=1) < self.reach
        out = torch.relu(1 + torch.sin(15 * flat) @ self.mix.T)  # type: ignore[operator]
        out = torch.where(near[:, None], self.factor * out, out)
        return dict.fromkeys(self.layers, out[:, :, None, None])


@dataclass
class Leak:
    """A view of the encoder, known images, and images with their truth (1 = member)."""

    view: BlackBox
    known: Known
    images: Tensor
    truth: NDArray[np.int64]

    def auc(self, attack: Attack) -> float:
        attack.fit(self.view, self.known, rng(0, "fit"))
        return float(roc_auc_score(self.truth, attack.score(self.view, self.images)))


def norm_leak(known: int, count: int = 60, factor: float = 0.7, width: int = 32) -> Leak:
    """`count` members and non-members of one distribution, and `known` others of each side."""
    source = Synthetic(classes=5, images=2 * (count + known), pixels=8)
    pool = torch.from_numpy(source.load(Request(None, None, None, 11)).images)
    members, others, rest = pool.split([count, count, 2 * known])
    backbone = Quieter(torch.cat([members, rest[:known]]), width, factor)
    encoder = Encoder(backbone, nn.Identity(), (0.0,) * 3, (1.0,) * 3)
    spec = MoCo(dim=width, queue=16, temperature=0.2)
    method = MomentumContrast(encoder, spec, 16, torch_rng(0, "queue"))
    view = BlackBox(method, AUGMENT, seed=0, device=torch.device("cpu"))
    images, truth = torch.cat([members, others]), np.repeat([1, 0], count)
    return Leak(view, Known(rest[:known], rest[known:]), images, truth)
