"""DOV4MM: how hard an image's embedding is to tell from those of the image with parts masked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.settings import option
from fedmia.threat import OUTPUTS, BlackBox, Threat

SQUARES = 4  # along a side, where the encoder has no patches of its own


@dataclass(frozen=True)
class Masks:
    """Recipe of views: some squares of a grid over the image in mid-grey.

    Attributes:
        squares: along a side, at least 2.
        share: of all squares that is masked, between 0 and 1; at least one is, and one is not.
    """

    squares: int
    share: float

    @property
    def draws(self) -> int:
        """Uniforms that one view of one image consumes: one a square."""
        return self.squares**2

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """One masked view (B, C, H, W) of each of (B, C, H, W) in [0, 1], from (B, draws)."""
        masked = min(max(round(self.share * self.draws), 1), self.draws - 1)
        rank = uniforms.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
        grid = (rank < masked).unflatten(1, (1, self.squares, self.squares))
        return torch.where(F.interpolate(grid.float(), images.shape[2:]) > 0, 0.5, images)


@dataclass
class DOV4MM(Attack):
    """Masked embeddings: how well the image's own can be told from views with most parts masked.

    A reconstructor learns, on known members, the embedding of an image from that of the image with
    squares masked; the score is minus its mean squared error over the image's masks, of embeddings
    of length 1. Made for masked encoders such as MAE; it asks for embeddings alone, so it runs on
    any. `dataset-inference` makes it one p-value of a whole set (statistic masked).

    After the authors' public code, as the paper's text was not at hand. There the reconstructor is
    a transformer on the tokens of visible patches, trained on a part of the data set in question,
    and t-tests compare draws of images; here it is a ridge regression on one vector an image.
    """

    paper: ClassVar[str] = "Xie et al., Dataset Ownership Verification, ICCV 2025, arXiv 2507.12022"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("patches",)
    by_round: ClassVar[bool] = False
    least_known: ClassVar[int] = 2

    masks: int = option(16, "masked views an image", ge=1)
    share: float = option(0.75, "of an image's squares that are masked", gt=0, lt=1)
    squares: int | None = option(
        None,
        f"squares along a side (none: the encoder's patches, {SQUARES} where it has none)",
        ge=2,
    )
    ridge: float = option(
        0.01, "penalty of the reconstructor, as a share of the masked embeddings' variance", gt=0
    )
    layer: str = option("avgpool", "embedding: pooled features, or the projection", choices=OUTPUTS)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Fit the reconstructor on the known members."""
        masked, whole = self._embeddings(view, known.members)
        x, y = masked.flatten(0, 1), whole.repeat_interleave(self.masks, dim=0)
        self._means = x.mean(dim=0), y.mean(dim=0)
        x, y = x - self._means[0], y - self._means[1]
        covariance = x.T @ x / len(x)
        penalty = self.ridge * covariance.diagonal().mean() + torch.finfo(x.dtype).tiny
        covariance.diagonal().add_(penalty)
        self._weights = torch.linalg.solve(covariance, x.T @ y / len(x))

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        masked, whole = self._embeddings(view, images)
        guess = (masked - self._means[0]) @ self._weights + self._means[1]
        return -np.asarray((guess - whole[:, None]).square().sum(dim=2).mean(dim=1).numpy())

    def _embeddings(self, view: BlackBox, images: Tensor) -> tuple[Tensor, Tensor]:
        """Float64 of length 1, of the masked views (N, M, P) and of the plain images (N, P)."""
        patches = images.shape[2] // view.patch if view.patch > 1 else SQUARES
        recipe = Masks(patches if self.squares is None else self.squares, self.share)
        whole = view.embed_plain(images, self.layer)
        masked = view.embed_views(images, self.masks, self.layer, recipe)
        return F.normalize(masked.double(), dim=2), F.normalize(whole.double(), dim=1)
