"""Uniforms keyed by the content of float images, drawn on their own device."""

from __future__ import annotations

import torch
from torch import Tensor

# Constants of SplitMix64 (Steele et al., OOPSLA 2014), as signed 64-bit integers.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def keyed_uniforms(images: Tensor, key: int | Tensor, draws: int) -> Tensor:
    """Uniforms in [0, 1), float32: a function of each image's bits and the key.

    Integer arithmetic alone, so a row is the same to the bit on every device, in whatever batch
    the image comes. Not for secrets.

    Args:
        images: (B, ...) floats, read as float32.
        key: a 64-bit integer, or one as an int64 scalar tensor.
        draws: how many for each image; a longer row begins with the shorter one.

    Returns:
        (B, draws).
    """
    digest = _mix_words(content_words(images) + key)[:, None]
    steps = torch.arange(1, draws + 1, device=images.device)
    top = (_mix_words(digest + steps * _STEP) >> 40) & 0xFFFFFF  # the 24 bits that a float32 holds
    return top.float() * 2.0**-24


def content_words(values: Tensor) -> Tensor:
    """A 64-bit integer (B,) for each row of (B, ...) floats: the sum of its words, each mixed with
    its place."""
    words = values.detach().float().flatten(1).contiguous().view(torch.int32).long()
    places = torch.arange(1, words.shape[1] + 1, device=words.device) * _STEP
    return _mix_words(words ^ places).sum(dim=1)


def _mix_words(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64 on int64, which wraps; shifts are of unsigned words."""
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _FIRST
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _SECOND
    return z ^ ((z >> 31) & (2**33 - 1))
