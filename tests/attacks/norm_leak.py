"""An encoder that betrays its members by the length of their features, and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known
from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.nets.base import Backbone
from fedmia.threat import WhiteBox
from tests.attacks.planted import auc_of, mixing, view_of

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
