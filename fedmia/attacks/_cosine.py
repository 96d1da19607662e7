"""Pairwise cosine similarities of an image's views (Eq. 4 of Chen et al.; EncoderMI)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F


def pairwise_cosines(embedded: Tensor) -> NDArray[np.float64]:
    """(N, M (M - 1) / 2) cosines of all pairs of views of (N, M, P), each row sorted descending."""
    unit = F.normalize(embedded.double(), dim=2)
    gram = unit @ unit.transpose(1, 2)  # N x M x M
    i, j = torch.triu_indices(gram.shape[1], gram.shape[1], offset=1)
    pairs = gram[:, i, j].sort(dim=1, descending=True).values
    return np.asarray(pairs.numpy(), dtype=np.float64)
