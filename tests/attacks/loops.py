"""Pairs of vectors, one after the other in plain Python: transcribed from the papers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedmia.ssl.base import SSLMethod


def naive_similarity(a: list[float], b: list[float], similarity: str = "cosine") -> float:
    """Of two vectors: their cosine, Pearson's correlation, or minus their distance."""
    if similarity == "euclidean":
        return -math.sqrt(sum((p - q) ** 2 for p, q in zip(a, b, strict=True)))
    if similarity == "correlation":
        a = [p - sum(a) / len(a) for p in a]
        b = [q - sum(b) / len(b) for q in b]
    dot = sum(p * q for p, q in zip(a, b, strict=True))
    return dot / (math.sqrt(sum(p * p for p in a)) * math.sqrt(sum(q * q for q in b)))


def naive_pairs(vectors: Tensor, similarity: str = "cosine") -> list[float]:
    """Eq. 3 of EncoderMI, Eq. 4 of Chen et al.: of all pairs of an image's views (M, P)."""
    rows = vectors.double().tolist()
    return [
        naive_similarity(rows[i], rows[j], similarity)
        for i in range(len(rows))
        for j in range(i + 1, len(rows))
    ]


@torch.no_grad()
def naive_views(method: SSLMethod, pixels: Tensor) -> list[Tensor]:
    """(M, P) of every image of (M, N, C, H, W), each view through the encoder alone."""
    return [
        torch.cat([method.encoder(view[None]) for view in pixels[:, i]])
        for i in range(pixels.shape[1])
    ]


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    powers = [math.exp(v - top) for v in values]
    return [p / sum(powers) for p in powers]
