"""ViT-Small."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.nets._vitoptions import ViTOptions
from fedmia.settings.option import option


@dataclass(frozen=True)
class ViTSmall(ViTOptions):
    """ViT-Small: 12 blocks of width 384 with 6 heads (21.3 million weights)."""

    width: int = option(384, "D, length of a token; a multiple of 4 and of the heads", ge=4)
    heads: int = option(6, "attention heads", ge=1)
