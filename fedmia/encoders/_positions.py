"""Tables of a transformer's positions, for another number of patches."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

NAMES = ("pos_embed", "pos_embedding", "positional_embedding", "position_embeddings")
PREFIX = 16  # most class and register tokens that have a position


def is_positions(name: str) -> bool:
    """Whether a tensor of this name is a learned table of positions."""
    parts = name.split(".")
    return parts[-1] in NAMES or parts[-1] == "weight" and parts[-2:-1] == ["position_embedding"]


def resampled(table: Tensor, rows: int) -> Tensor | None:
    """A table (.., N, D) of a square grid for `rows` positions, or None where there is no such.

    As timm does it: bicubic with antialiasing; those of class and register tokens stay.
    """
    for prefix in range(PREFIX):
        old, new = table.shape[-2] - prefix, rows - prefix
        if min(old, new) < 1:
            return None
        if math.isqrt(old) ** 2 == old and math.isqrt(new) ** 2 == new:
            break
    else:
        return None
    flat = table.float().reshape(table.shape[-2], -1)
    side, wanted = math.isqrt(old), math.isqrt(new)
    grid = flat[prefix:].T.reshape(1, -1, side, side)
    fitted = F.interpolate(grid, size=(wanted, wanted), mode="bicubic", antialias=True)
    made = flat.new_empty(rows, flat.shape[1])
    made[:prefix], made[prefix:] = flat[:prefix], fitted.flatten(2)[0].T
    return made.reshape(*table.shape[:-2], rows, -1).to(table.dtype)
