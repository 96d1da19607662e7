"""ResNet-50."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmia.nets._resnet import Block, Bottleneck, ResNetOptions


@dataclass(frozen=True)
class ResNet50(ResNetOptions):
    """ResNet-50, group norm by default, CIFAR stem below 128 pixels (23.5 million weights)."""

    paper: ClassVar[str] = "He et al., CVPR 2016, arXiv 1512.03385"
    block: ClassVar[Block] = Bottleneck
    depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)
