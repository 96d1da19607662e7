"""ResNet-18."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmia.nets._resnet import BasicBlock, Block, ResNetOptions


@dataclass(frozen=True)
class ResNet18(ResNetOptions):
    """ResNet-18, group norm by default, CIFAR stem below 128 pixels (11.2 million weights)."""

    paper: ClassVar[str] = "He et al., CVPR 2016, arXiv 1512.03385"
    block: ClassVar[Block] = BasicBlock
    depths: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)
