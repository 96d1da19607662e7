"""What was understood of a released encoder, for the report."""

from __future__ import annotations

import torch
from torch import nn

from fedmia.released.base import Released
from fedmia.results import EncoderInfo


@torch.no_grad()
def understood(released: Released, size: int) -> EncoderInfo:
    """Where its weights come from, its preprocessing, and its outputs for images of `size`."""
    net, told = released.method.encoder, released.weights
    blank = net.mean.new_zeros(1, released.channels or net.mean.shape[1], size, size)
    headed = not isinstance(net.head, nn.Identity)
    kinds = {"avgpool": "pooled", "encoder": "projection" if headed else "pooled"}
    found = net.features(blank, net.layers).items()
    return EncoderInfo(
        form=told.form,
        loaded=told.loaded,
        dropped=told.dropped,
        missing=told.missing,
        size=size,
        mean=net.mean.flatten().tolist(),
        std=net.std.flatten().tolist(),
        outputs=[(n, kinds.get(n, "map"), tuple(value.shape[1:])) for n, value in found],
    )
