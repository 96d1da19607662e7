"""Whether an encoder answers the same image alike when it is asked again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fedmia.ssl.base import Encoder

SAME = 1e-4  # of the largest output: what two passes of one image may differ by on a GPU


@torch.no_grad()
def first_change(
    encoder: Encoder, parts: Iterable[Tensor], rows: Mapping[str, Tensor]
) -> str | None:
    """The first layer whose outputs for some images are not `rows` again, or None.

    Args:
        parts: uint8 (n, C, H, W), the images of each forward pass.
        rows: layer -> (N, ..) of all images before, flattened.
    """
    pixels = [part.to(encoder.mean.device).float() / 255 for part in parts]
    again = [encoder.features(part, encoder.layers) for part in pixels]
    for name, before in rows.items():
        after = torch.cat([found[name].flatten(1).float().cpu() for found in again])
        if (after - before).abs().max() > SAME * before.abs().max():
            return name
    return None
