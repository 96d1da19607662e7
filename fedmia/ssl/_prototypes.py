"""Prototypes: directions that outputs are compared with, averaged like the encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.nets.base import SelfInitialisedLayer, initialise
from fedmia.ssl._twoview import TwoView


class Prototypes(SelfInitialisedLayer):
    """K directions of unit length; a score is the cosine of an output with one of them.

    They are scaled to length 1 wherever they are used, as the mean of several clients' directions
    is shorter, and after each step, so that weight decay does not make later steps larger.

    Args:
        count, dim: K and P.
        freeze: images to be seen in training before the prototypes move. Papers keep them still
            for the first epoch, until the outputs mean something.
    """

    def __init__(self, count: int, dim: int, freeze: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, dim))
        initialise(self, generator)
        self.freeze = freeze
        self.seen = 0
        self._still: Tensor | None = None

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> None:
        self.weight.copy_(F.normalize(torch.randn(self.weight.shape, generator=generator), dim=1))

    def directions(self) -> Tensor:
        """(K, P) of unit length."""
        return F.normalize(self.weight, dim=1)

    def forward(self, z: Tensor) -> Tensor:
        """Scores (..., K) in [-1, 1] of outputs (..., P)."""
        return F.linear(F.normalize(z, dim=-1), self.directions().to(z.dtype))

    def training_scores(self, z: Tensor) -> Tensor:
        """`forward`; frozen prototypes get a gradient of zero (none at all would stop DP-SGD)."""
        if self.seen >= self.freeze:
            return self(z)
        self._still = self.weight.detach().clone()
        still = F.linear(F.normalize(z, dim=-1), self.directions().detach().to(z.dtype))
        return still + 0 * self(z)  # by way of the images, where DP-SGD looks for it

    @torch.no_grad()
    def after_step(self, images: int) -> None:
        """After a step on so many images: to length 1; frozen ones back where weight decay moved
        them."""
        self.weight.copy_(self.directions() if self._still is None else self._still)
        self._still = None
        self.seen += images


def freeze_for(epochs: float, images: int | None) -> int:
    """Images seen in `epochs` epochs over `images` images; 0 where their number is not known."""
    return 0 if images is None else round(epochs * images)


class PrototypeSSL(TwoView):
    """A method of prototypes, which the federation averages and each client counts for."""

    prototypes: Prototypes
    # Images that were seen, and how many end the freeze.
    LOCAL: ClassVar[Mapping[str, str]] = {
        "key.seen": "prototypes.seen",
        "key.freeze": "prototypes.freeze",
    }

    def shared_modules(self) -> Mapping[str, nn.Module]:
        return {"": self.encoder, "prototypes.": self.prototypes}

    def renew(self, images: int | None, generator: torch.Generator) -> bool:
        self.prototypes.freeze = freeze_for(self.spec.freeze_epochs, images)
        self.prototypes.seen = 0
        return super().renew(images, generator)


def swapped_loss(q: Sequence[Tensor], s: Sequence[Tensor], T: float) -> Tensor:
    """Mean of the `cross_entropy` of each view's scores with the other's targets, (B,)."""
    return (cross_entropy(q[0], s[1], T) + cross_entropy(q[1], s[0], T)) / 2


def cross_entropy(targets: Tensor, scores: Tensor, T: float) -> Tensor:
    """-sum_k targets log softmax(scores / T), (...) of (..., K) each."""
    return -(targets * torch.log_softmax(scores / T, dim=-1)).sum(dim=-1)


def potentials(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Log scale of each prototype that makes all equally used: log u of SwAV's Eq. 5.

    The paper scales rows and columns of exp(scores / epsilon) in turn. This is the same in logs,
    where no epsilon overflows. Only u is kept: what a row loses to its own scaling follows from
    it, so that a feature outside `scores` can be assigned alike (`codes`).

    Args:
        scores: (N, K), of N features with K prototypes, N >= 0; without any feature u is 1.
        epsilon: > 0, smoothness.
        iterations: >= 0.

    Returns:
        log u, (K,).
    """
    logits = scores / epsilon
    u, v = logits.new_zeros(scores.shape[1]), logits.new_zeros(scores.shape[0])
    for _ in range(iterations if len(scores) else 0):
        u = -torch.logsumexp(logits + v[:, None], dim=0)
        v = -torch.logsumexp(logits + u, dim=1)
    return u


def codes(scores: Tensor, u: Tensor, epsilon: float) -> Tensor:
    """Assignment of each feature, (N, K), rows summing to 1, by its scores (N, K) under the
    `potentials` u (K,), with smoothness epsilon > 0."""
    return torch.softmax(scores / epsilon + u, dim=1)
