"""What was understood of a released encoder, for the report."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedmia.encoders._positions import is_positions
from fedmia.encoders.base import FAILURES, Released
from fedmia.records import EncoderInfo


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
        crops=_crops(released, blank),
    )


def _crops(released: Released, blank: Tensor) -> str:
    """Which sizes of an image's parts the encoder takes; `blank` is an image (1, C, S, S)."""
    encoder, size = released.method.encoder, blank.shape[2]
    patch = encoder.backbone.patch
    half = patch * max(1, size // 2 // patch)
    try:
        encoder.features(blank[:, :, :half, :half], ["avgpool"])
    except FAILURES:
        return f"{size} pixels alone"
    sides = "any" if patch == 1 else f"multiples of {patch} pixels"
    tables = any(map(is_positions, encoder.state_dict()))
    return f"{sides}, positions resampled" if released.fixed_size and tables else sides
