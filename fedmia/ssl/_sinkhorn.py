"""Sinkhorn-Knopp: soft assignments of features to prototypes that use every prototype alike."""

from __future__ import annotations

import torch
from torch import Tensor


def potentials(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """What each prototype gains so that all are used alike, (K,): log u of Eq. 5, Caron et al.

    The paper scales rows and columns of exp(scores / epsilon) in turn. This is the same in logs,
    where no epsilon overflows. Only u is kept: what a row loses to its own scaling follows from
    it, so that a feature outside `scores` can be assigned alike (`codes`).

    Args:
        scores: (N, K), of N features with K prototypes, N >= 0; without any feature u is 1.
        epsilon: > 0, smoothness.
        iterations: >= 0.
    """
    logits = scores / epsilon
    u, v = logits.new_zeros(scores.shape[1]), logits.new_zeros(scores.shape[0])
    for _ in range(iterations if len(scores) else 0):
        u = -torch.logsumexp(logits + v[:, None], dim=0)
        v = -torch.logsumexp(logits + u, dim=1)
    return u


def codes(scores: Tensor, u: Tensor, epsilon: float) -> Tensor:
    """Assignment of each feature, (N, K), rows summing to 1, under the `potentials` u (K,)."""
    return torch.softmax(scores / epsilon + u, dim=1)
