"""ResNet-18, -34, -50 (He et al., CVPR 2016) with torchvision's architecture and names.

Additions and ReLUs are out of place, or Opacus' per-sample gradients fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import NORM_HELP, NORMS, Backbone, Net, make_norm
from fedmia.settings import option
from fedmia.settings.errors import InputError

STEMS = ("auto", "cifar", "imagenet")
# Below this side, `auto` keeps the resolution in the stem.
CIFAR_BELOW = 128


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; ResNet-18 and -34.

    Args:
        inputs: channels of the input.
        width: channels of the convolutions.
        stride: of the first convolution.
        norm: of NORMS, for `make_norm`.
    """

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = make_norm(norm, width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = make_norm(norm, width)
        self.downsample = _shortcut(inputs, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, width, H / stride, W / stride), rounded up."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(out + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which has the stride, as in torchvision), 1x1 to four times the width.

    Args:
        inputs: channels of the input.
        width: channels of the 3x3 convolution; the output has four times as many.
        stride: of the 3x3 convolution.
        norm: of NORMS, for `make_norm`.
    """

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = make_norm(norm, width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = make_norm(norm, width)
        self.conv3 = _conv(width, outputs, 1)
        self.bn3 = make_norm(norm, outputs)
        self.downsample = _shortcut(inputs, outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, 4 width, H / stride, W / stride), rounded up."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(out + shortcut)


Block = type[BasicBlock] | type[Bottleneck]


def _shortcut(inputs: int, outputs: int, stride: int, norm: str) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), make_norm(norm, outputs))


class ResNet(Backbone):
    """Stem and four stages of blocks; features of length 8 width expansion.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: number of blocks in each of the four stages.
        channels: of the images.
        width: channels of the first stage; each later stage has twice as many.
        norm: of NORMS, for `make_norm`.
        stem: which first layers, as the option of the same name says.
    """

    layers = ("layer1", "layer2", "layer3", "layer4")

    def __init__(
        self, block: Block, depths: Sequence[int], channels: int, width: int, norm: str, stem: str
    ) -> None:
        super().__init__()
        cifar = stem == "cifar"
        self.conv1 = _conv(channels, width, 3 if cifar else 7, 1 if cifar else 2)
        self.bn1 = make_norm(norm, width)
        self.maxpool = nn.Identity() if cifar else nn.MaxPool2d(3, stride=2, padding=1)
        inputs = width
        for stage, depth in enumerate(depths):
            inner = width * 2**stage
            blocks: list[nn.Module] = []
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(inputs, inner, stride, norm))
                inputs = inner * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.width = inputs

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        return super().stages(self.maxpool(F.relu(self.bn1(self.conv1(x)))))


@dataclass(frozen=True)
class _Depth(Net):
    """Options that the three depths share."""

    paper: ClassVar[str] = "He et al., CVPR 2016, arXiv 1512.03385"

    norm: str = option("group", NORM_HELP, choices=NORMS)
    stem: str = option(
        "auto",
        "first layers: cifar = 3x3 stride 1, imagenet = 7x7 stride 2 and max-pool, "
        f"auto = cifar below {CIFAR_BELOW} pixels",
        choices=STEMS,
    )
    width: int = option(64, "channels of the first stage", ge=1)

    block: ClassVar[Block]
    depths: ClassVar[tuple[int, ...]]

    def build(self, channels: int, size: int) -> ResNet:
        """A ResNet with the stem that suits the size, where none is asked for.

        Raises:
            InputError: the last map would be 1x1, with no parts to compare.
        """
        stem = self.stem
        if stem == "auto":
            stem = "cifar" if size < CIFAR_BELOW else "imagenet"
        reduction = 8 if stem == "cifar" else 32
        if size <= reduction:
            raise InputError(
                f"{type(self).__name__} with the {stem} stem makes a 1x1 last map of {size}x{size} "
                f"images, which has no parts to compare; the size must be at least {reduction + 1} "
                "pixels"
            )
        return ResNet(self.block, self.depths, channels, self.width, self.norm, stem)


class ResNet18(_Depth):
    """ResNet-18, group norm by default, CIFAR stem below 128 pixels (11.2 million weights)."""

    name: ClassVar[str] = "resnet18"
    block: ClassVar[Block] = BasicBlock
    depths: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)


class ResNet34(_Depth):
    """ResNet-34, group norm by default, CIFAR stem below 128 pixels (21.3 million weights)."""

    name: ClassVar[str] = "resnet34"
    block: ClassVar[Block] = BasicBlock
    depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)


class ResNet50(_Depth):
    """ResNet-50, group norm by default, CIFAR stem below 128 pixels (23.5 million weights)."""

    name: ClassVar[str] = "resnet50"
    block: ClassVar[Block] = Bottleneck
    depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)
