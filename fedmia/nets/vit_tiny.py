"""ViT-Tiny."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.nets._vitoptions import ViTOptions
from fedmia.settings.option import option


@dataclass(frozen=True)
class ViTTiny(ViTOptions):
    """ViT-Tiny: 12 blocks of width 192 with 3 heads (5.4 million weights)."""

    width: int = option(192, "D, length of a token; a multiple of 4 and of the heads", ge=4)
    heads: int = option(3, "attention heads", ge=1)
