"""Normalisation layers of the convolutional nets, chosen by name."""

from __future__ import annotations

from torch import nn

NORMS = ("group", "batch")


def make_norm(name: str, channels: int) -> nn.Module:
    """`group`: the most groups <= 32 that divide `channels`; `batch`: batch norm, torch defaults.

    Group norm is the default of the house: it keeps no running statistics to average between
    clients, mixes no images, and per-sample gradients exist (Wu and He, ECCV 2018, 32 groups).
    """
    if name == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(group_count(channels), channels)


def group_count(channels: int) -> int:
    """The largest divisor of `channels` that is at most 32."""
    return max(g for g in range(1, min(32, channels) + 1) if channels % g == 0)
