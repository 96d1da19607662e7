"""VGG-11 (Simonyan and Zisserman, ICLR 2015): five stages of 3x3 convolutions and max-pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedmia.nets.base import NORM_HELP, NORMS, Backbone, Net, make_norm
from fedmia.settings import option
from fedmia.settings.errors import InputError

STAGES = 5


class VGG(Backbone):
    """Convolution, norm and ReLU in five stages; features are the last map's global average.

    Args:
        stages: output channels of each convolution, stage by stage.
        channels: of the images.
        norm: of NORMS, for `make_norm`.
        pools: how many of the stages end in a 2x2 max-pool, from the first on.
    """

    layers = tuple(f"layer{i}" for i in range(1, STAGES + 1))

    def __init__(
        self, stages: Sequence[Sequence[int]], channels: int, norm: str, pools: int
    ) -> None:
        super().__init__()
        inputs = channels
        for i, (name, stage) in enumerate(zip(self.layers, stages, strict=True)):
            parts: list[nn.Module] = []
            for outputs in stage:
                conv = nn.Conv2d(inputs, outputs, 3, padding=1)
                parts += [conv, make_norm(norm, outputs), nn.ReLU()]
                inputs = outputs
            if i < pools:
                parts.append(nn.MaxPool2d(2))
            self.add_module(name, nn.Sequential(*parts))
        self.width = inputs


@dataclass(frozen=True)
class VGG11BN(Net):
    """VGG-11 with group norm by default (`norm batch`: VGG-11-BN), 9.2 million weights.

    Convolutions only, pooled by a global average. Below 64 pixels the last max-pools are left out,
    as many as keep the last map at least 2x2, so that it holds parts to compare.
    """

    paper: ClassVar[str] = "Simonyan and Zisserman, ICLR 2015, arXiv 1409.1556"

    norm: str = option("group", NORM_HELP, choices=NORMS)
    width: int = option(
        64, "channels of the first stage; the others have 2, 4, 8 and 8 times as many", ge=1
    )

    def build(self, channels: int, size: int) -> VGG:
        """A VGG-11 with as many poolings as leave a map of 2x2 at least.

        Raises:
            InputError: a size below 2.
        """
        if size < 2:
            raise InputError(f"VGG-11-BN needs images of at least 2x2 pixels, got {size}x{size}")
        w, pools = self.width, min(STAGES, size.bit_length() - 2)
        stages = ((w,), (2 * w,), (4 * w, 4 * w), (8 * w, 8 * w), (8 * w, 8 * w))
        return VGG(stages, channels, self.norm, pools)
