"""A transformer of one image size on other sizes: its positions are resampled for each pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedmia.encoders._positions import PREFIX, is_positions, resampled
from fedmia.encoders.base import FAILURES


class Grid(NamedTuple):
    """What a module's positions are for.

    Attributes:
        side: pixels a side of the images that it takes by itself. patch: of a patch.
        tables: names of its tables of positions (.., N, D).
    """

    side: int
    patch: int
    tables: tuple[str, ...]

    def __call__(self, module: nn.Module, x: Tensor) -> Any:
        """The module's outputs for (B, C, H, H), H a multiple of the patch.

        At its own size it runs as it is. Elsewhere each table is resampled as `resampled` does,
        while the pass lasts.
        """
        if x.shape[2] == self.side:
            return module(x)
        places = (x.shape[2] // self.patch) ** 2 - (self.side // self.patch) ** 2
        own = named(module)
        found = {n: resampled(own[n], own[n].shape[-2] + places) for n in self.tables}
        fitted = {n: table for n, table in found.items() if table is not None}
        return functional_call(module, fitted, (x,))


@torch.no_grad()
def find_grid(module: nn.Module, channels: int, side: int) -> Grid | None:
    """The grid of a module that takes images of `side` alone; None where it has no patches or no
    learned table of their positions, or where other tables alone do not make it take others."""
    convs = (m for m in module.modules() if isinstance(m, nn.Conv2d))
    first = next(convs, None)
    if first is None or first.kernel_size != first.stride or first.stride[0] != first.stride[1]:
        return None
    patch = first.stride[0]
    places = (side // patch) ** 2
    tables = tuple(
        n for n, t in named(module).items()
        if is_positions(n) and t.ndim >= 2 and 0 <= t.shape[-2] - places <= PREFIX
    )  # fmt: skip
    if patch == 1 or side % patch or side < 2 * patch or not tables:
        return None
    grid = Grid(side, patch, tables)
    half = patch * (side // patch // 2)
    try:
        grid(module, torch.zeros(1, channels, half, half))
    except FAILURES:
        return None
    return grid


def named(module: nn.Module) -> Mapping[str, Tensor]:
    """Parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
