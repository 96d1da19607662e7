"""VGG-11 with normalisation after each convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmia.nets._norm import NORMS
from fedmia.nets._vgg import VGG, pool_count
from fedmia.nets.base import Net
from fedmia.settings.option import option


@dataclass(frozen=True)
class VGG11BN(Net):
    """VGG-11 with group norm by default (`norm batch`: VGG-11-BN), 9.2 million weights.

    Convolutions only, pooled by a global average. Below 64 pixels the last max-pools are left out,
    as many as keep the last map at least 2x2, so that it holds parts to compare.
    """

    paper: ClassVar[str] = "Simonyan and Zisserman, ICLR 2015, arXiv 1409.1556"

    norm: str = option("group", "normalisation: groups of channels, or the batch", choices=NORMS)
    width: int = option(
        64, "channels of the first stage; the others have 2, 4, 8 and 8 times as many", ge=1
    )

    def build(self, channels: int, size: int) -> VGG:
        """The backbone, its weights not yet set.

        Raises:
            InputError: a size below 2, whose map would be 1x1.
        """
        w = self.width
        stages = ((w,), (2 * w,), (4 * w, 4 * w), (8 * w, 8 * w), (8 * w, 8 * w))
        return VGG(stages, channels, self.norm, pool_count("VGG-11-BN", size))
