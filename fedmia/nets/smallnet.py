"""SmallNet: the encoder for a CPU and small images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedmia.nets.base import NORM_HELP, NORMS, Backbone, Net, make_norm
from fedmia.settings import option
from fedmia.settings.errors import InputError


class SmallConvNet(Backbone):
    """Four stages of 3x3 convolution, norm, ReLU; dispatch, not arithmetic, is its cost.

    Args:
        channels: of the images.
        widths: output channels of the four stages.
        strides: of the four convolutions.
        norm: of NORMS, for `make_norm`.
    """

    layers = ("layer1", "layer2", "layer3", "layer4")

    def __init__(
        self, channels: int, widths: tuple[int, ...], strides: tuple[int, ...], norm: str
    ) -> None:
        super().__init__()
        inputs = (channels, *widths[:-1])
        for i, (before, after, stride) in enumerate(zip(inputs, widths, strides, strict=True), 1):
            conv = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
            self.add_module(f"layer{i}", nn.Sequential(conv, make_norm(norm, after), nn.ReLU()))
        self.width = widths[-1]


@dataclass(frozen=True)
class SmallNet(Net):
    """Four 3x3 convolutions for a CPU and images of 8 to 64 pixels; the last map is about 4x4."""

    width: int = option(
        16, "channels of the first stage; the others have 2, 4 and 4 times as many", ge=1
    )
    norm: str = option("group", NORM_HELP, choices=NORMS)

    def build(self, channels: int, size: int) -> SmallConvNet:
        """A network of four stages, whose strides suit the size.

        Raises:
            InputError: a size below 2.
        """
        if size < 2:
            raise InputError(f"SmallNet needs images of at least 2x2 pixels, got {size}x{size}")
        w = self.width
        return SmallConvNet(channels, (w, 2 * w, 4 * w, 4 * w), strides(size), self.norm)


def strides(size: int) -> tuple[int, int, int, int]:
    """Strides of the four stages: as many halvings as bring `size` to 4 pixels or fewer."""
    halvings = 0
    while halvings < 4 and -(-size // 2**halvings) > 4:
        halvings += 1
    return ((1, 1, 1, 1), (1, 2, 1, 1), (1, 2, 2, 1), (1, 2, 2, 2), (2, 2, 2, 2))[halvings]
