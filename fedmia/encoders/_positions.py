"""Tables of a transformer's positions: which tensors they are, and for other sizes of images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedmia.encoders._outputs import FAILURES

NAMES = ("pos_embed", "pos_embedding", "positional_embedding", "position_embeddings")
PREFIX = 16  # most class and register tokens


def is_positions(name: str) -> bool:
    """Whether a tensor of this name is a learned table of positions."""
    parts = name.split(".")
    return parts[-1] in NAMES or parts[-1] == "weight" and parts[-2:-1] == ["position_embedding"]


def resample_table(table: Tensor, rows: int) -> Tensor | None:
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
    side, new_side = math.isqrt(old), math.isqrt(new)
    grid = flat[prefix:].T.reshape(1, -1, side, side)
    fitted = F.interpolate(grid, size=(new_side, new_side), mode="bicubic", antialias=True)
    resampled = flat.new_empty(rows, flat.shape[1])
    resampled[:prefix], resampled[prefix:] = flat[:prefix], fitted.flatten(2)[0].T
    return resampled.reshape(*table.shape[:-2], rows, -1).to(table.dtype)


class PositionGrid:
    """A transformer of one image size on other sizes: what its positions are for.

    Args:
        side: pixels a side of the images that it takes by itself.
        patch: pixels a side of a patch.
        tables: names of its tables of positions (.., N, D).
    """

    def __init__(self, side: int, patch: int, tables: tuple[str, ...]) -> None:
        self.side = side
        self.patch = patch
        self.tables = tables

    def __call__(self, module: nn.Module, x: Tensor) -> Any:
        """The module's outputs for (B, C, H, H), H a multiple of the patch.

        At its own size it runs as it is. Elsewhere each table is resampled as `resample_table`
        does, while the pass lasts.
        """
        if x.shape[2] == self.side:
            return module(x)
        places = (x.shape[2] // self.patch) ** 2 - (self.side // self.patch) ** 2
        own = named_tensors(module)
        tables = {n: resample_table(own[n], own[n].shape[-2] + places) for n in self.tables}
        fitted = {n: table for n, table in tables.items() if table is not None}
        return functional_call(module, fitted, (x,))


@torch.no_grad()
def find_grid(module: nn.Module, channels: int, side: int) -> PositionGrid | None:
    """The grid of a module that takes images of `side` alone; None where it has no patches or no
    learned table of their positions, or where other tables alone do not make it take others."""
    first = next((m for m in module.modules() if isinstance(m, nn.Conv2d)), None)
    if first is None or first.kernel_size != first.stride or first.stride[0] != first.stride[1]:
        return None
    patch = first.stride[0]
    places = (side // patch) ** 2
    tables = tuple(
        n
        for n, t in named_tensors(module).items()
        if is_positions(n) and t.ndim >= 2 and 0 <= t.shape[-2] - places <= PREFIX
    )
    if patch == 1 or side % patch or side < 2 * patch or not tables:
        return None
    grid = PositionGrid(side, patch, tables)
    half = patch * (side // patch // 2)
    try:
        grid(module, torch.zeros(1, channels, half, half))
    except FAILURES:
        return None
    return grid


def named_tensors(module: nn.Module) -> Mapping[str, Tensor]:
    """Parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
