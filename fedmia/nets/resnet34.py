"""ResNet-34."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmia.nets._resnet import BasicBlock, Block, ResNetOptions


@dataclass(frozen=True)
class ResNet34(ResNetOptions):
    """ResNet-34, group norm by default, CIFAR stem below 128 pixels (21.3 million weights)."""

    paper: ClassVar[str] = "He et al., CVPR 2016, arXiv 1512.03385"
    block: ClassVar[Block] = BasicBlock
    depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)
