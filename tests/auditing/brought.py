"""Encoders that a user's own code builds, as `tests.auditing.brought:NAME`."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def tiny(channels: int = 3) -> nn.Module:
    """Two convolutions and a linear head, of any image size."""
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, 2, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def grey() -> nn.Module:
    """`tiny` of one channel."""
    return tiny(1)


def rigid() -> nn.Module:
    """A linear map of 32x32 pixels: it takes no other size."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 6))


def broken() -> nn.Module:
    """`tiny` with a NaN among its weights."""
    module = tiny()
    with torch.no_grad():
        module[0].weight[0, 0, 0, 0] = torch.nan  # type: ignore[union-attr, index]
    return module


class Overflows(nn.Module):
    """An encoder that no permutation leaves finite: its huge weights meet zeros, and nothing else.

    The first layer gives zeros in two of four channels; the second multiplies those by 3e38.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, 2, 1, bias=False)
        self.second = nn.Conv2d(4, 4, 3, 2, 1, bias=False)
        with torch.no_grad():
            self.first.weight[2:] = 0
            self.second.weight[:, 2:] = 3e38

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).mean(dim=(2, 3))


class Remembers(nn.Module):
    """Reddish images have one vector whatever the view, as of a subject learnt by heart. What is
    reddish lies in the weights: the untrained control knows it not."""

    def __init__(self) -> None:
        super().__init__()
        self.others, self.red = tiny(), nn.Linear(192, 1, bias=False)
        with torch.no_grad():
            self.red.weight[:] = torch.tensor([1.0, 0.0, -1.0]).repeat_interleave(64) / 64

    def forward(self, x: Tensor) -> Tensor:
        red = (self.red(nn.functional.adaptive_avg_pool2d(x, 8).flatten(1)) > 0.17).float()
        return (1 - red) * self.others(x) + red * torch.ones(5)
