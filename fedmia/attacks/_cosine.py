"""Pairwise similarities of an image's views (Eq. 4 of Chen et al.; Eq. 3 of EncoderMI)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

SIMILARITIES = ("cosine", "correlation", "euclidean")
CHUNK = 1024  # images whose pairs are formed at once


def pairwise(embedded: Tensor, similarity: str = "cosine") -> Tensor:
    """Similarities of all pairs of an image's views (Eq. 3), higher = closer.

    Args:
        embedded: (N, n, P).
        similarity: `cosine`; `correlation`, Pearson's of the two vectors; `euclidean`, the
            distance with its sign turned (the paper names the metric and gives no formula).

    Returns:
        float64 (N, n (n - 1) / 2), pairs (1, 2), (1, 3) .. (n - 1, n).
    """
    return torch.cat([_pairs(part.double(), similarity) for part in embedded.split(CHUNK)])


def _pairs(x: Tensor, similarity: str) -> Tensor:
    i, j = torch.triu_indices(x.shape[1], x.shape[1], offset=1)
    if similarity == "euclidean":
        return -torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")[:, i, j]
    if similarity == "correlation":
        x = x - x.mean(dim=2, keepdim=True)
    unit = F.normalize(x, dim=2)
    return (unit @ unit.transpose(1, 2))[:, i, j]


def pairwise_cosines(embedded: Tensor) -> NDArray[np.float64]:
    """(N, M (M - 1) / 2) cosines of all pairs of views of (N, M, P), each row sorted descending."""
    return np.asarray(pairwise(embedded).sort(dim=1, descending=True).values.numpy())
