"""ViT-Base."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.nets._vitoptions import ViTOptions
from fedmia.settings.option import option


@dataclass(frozen=True)
class ViTBase(ViTOptions):
    """ViT-Base: 12 blocks of width 768 with 12 heads (85.1 million weights)."""

    width: int = option(768, "D, length of a token; a multiple of 4 and of the heads", ge=4)
    heads: int = option(12, "attention heads", ge=1)
