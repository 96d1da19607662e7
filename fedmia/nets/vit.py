"""ViT-Tiny, -Small and -Base (Dosovitskiy et al., ICLR 2021; Touvron et al., ICML 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmia.nets.base import Net
from fedmia.nets.transformer import STAGES, VisionTransformer, check_width
from fedmia.settings import option
from fedmia.settings.errors import InputError

POSITIONS = ("sincos", "learned")
POOLS = ("cls", "mean")
WIDTH = "D, length of a token; a multiple of 4 and of the heads"
HEADS = "attention heads"
# Patch where none is given, by the largest side that it is for.
PATCHES = ((16, 2), (48, 4), (128, 8))


@dataclass(frozen=True)
class _Size(Net):
    """Options that the three sizes share; a subclass sets the width and the heads."""

    paper: ClassVar[str] = "Dosovitskiy et al., ICLR 2021, arXiv 2010.11929"

    width: int = option(192, WIDTH, ge=4)
    heads: int = option(3, HEADS, ge=1)
    depth: int = option(12, "blocks, dealt to four stages", ge=STAGES)
    patch: int | None = option(
        None,
        "side of a patch in pixels (none: 2 up to 16 pixels, 4 up to 48, 8 up to 128, else 16)",
        ge=1,
    )
    positions: str = option(
        "sincos", "positions: fixed sines and cosines, or learned", choices=POSITIONS
    )
    pool: str = option("cls", "pooled vector: class token, or mean of the patches", choices=POOLS)
    drop_path: float = option(
        0.0, "stochastic depth: probability of dropping the last block's branches", ge=0, lt=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_width(self, self.width, self.heads)

    def build(self, channels: int, size: int) -> VisionTransformer:
        """A vision transformer for the size, whose patch it sets where none is asked for.

        Raises:
            InputError: the size is no multiple of the patch, or less than two of it.
        """
        patch = auto_patch(size) if self.patch is None else self.patch
        if size % patch or size < 2 * patch:
            raise InputError(
                f"{type(self).__name__} cuts {size}x{size} images into patches of {patch}x{patch}: "
                "the size must be a multiple of the patch, and two of it at least"
            )
        return VisionTransformer(channels, size, patch, self)


class ViTTiny(_Size):
    """ViT-Tiny: 12 blocks of width 192 with 3 heads (5.4 million weights)."""

    name: ClassVar[str] = "vit-tiny"


@dataclass(frozen=True)
class ViTSmall(_Size):
    """ViT-Small: 12 blocks of width 384 with 6 heads (21.3 million weights)."""

    name: ClassVar[str] = "vit-small"

    width: int = option(384, WIDTH, ge=4)
    heads: int = option(6, HEADS, ge=1)


@dataclass(frozen=True)
class ViTBase(_Size):
    """ViT-Base: 12 blocks of width 768 with 12 heads (85.1 million weights)."""

    name: ClassVar[str] = "vit-base"

    width: int = option(768, WIDTH, ge=4)
    heads: int = option(12, HEADS, ge=1)


def auto_patch(size: int) -> int:
    """Side of a patch for images of `size` pixels a side, where none is given."""
    return next((patch for largest, patch in PATCHES if size <= largest), 16)
