"""Weighted k-nearest-neighbour probe (Wu et al., CVPR 2018): utility of the encoder's features."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def weighted_knn(
    bank: Tensor, bank_labels: Tensor, features: Tensor, k: int = 20, T: float = 0.1
) -> Tensor:
    """Predicted labels (N,): cosine neighbours, each voting with weight exp(cosine / T).

    Args:
        bank: (B, D) features of labelled images. bank_labels: int64 (B,).
        features: (N, D) to classify.
        k: neighbours, cut to B.
        T: temperature, > 0.
    """
    similarity = F.normalize(features.double(), dim=1) @ F.normalize(bank.double(), dim=1).T
    weight, index = similarity.topk(min(k, len(bank)), dim=1)
    votes = torch.zeros(len(features), int(bank_labels.max()) + 1, dtype=torch.float64)
    votes.scatter_add_(1, bank_labels[index], (weight / T).exp())
    return votes.argmax(dim=1)


def knn_accuracy(
    bank: Tensor, bank_labels: Tensor, features: Tensor, labels: Tensor, k: int = 20, T: float = 0.1
) -> float:
    """Share of `features` (N, D) whose weighted-kNN label is right, in [0, 1]."""
    predicted = weighted_knn(bank, bank_labels, features, k, T)
    return float((predicted == labels).double().mean())
