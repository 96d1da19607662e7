"""Cosine-similarity attack: an image trained on has views that lie closer together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._classifier import ClassifierAttack
from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks.base import Known, Scores
from fedmia.attacks.classifier import CLASSIFIERS
from fedmia.settings import option
from fedmia.threat import BlackBox, Threat


@dataclass
class Similarity(ClassifierAttack):
    """Pairwise cosine similarity of M views of the image under the encoder."""

    paper: ClassVar[str] = "Chen et al., Federated Contrastive Learning, Sec. IV-B1, Eq. 4-5"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("similarity",)

    views: int = option(24, "M, augmented views an image", ge=2)
    pairs: str = option(
        "mean",
        "what of the M(M-1)/2 cosines is used: their mean, all of them sorted, or the "
        "three largest as in the paper",
        choices=("mean", "all", "top3"),
    )
    classifier: str = option(
        "lr", "classifier for all and top3 (mean needs none)", choices=CLASSIFIERS,
        needs=("pairs", "all", "top3"),
    )  # fmt: skip

    @property
    def learns(self) -> bool:
        return self.pairs != "mean"

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        if self.pairs != "mean":  # of which higher = member, by the paper's claim
            super().fit(view, known, rng)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        return (
            self.inputs(view, images)[:, 0] if self.pairs == "mean" else super().score(view, images)
        )

    def inputs(self, view: BlackBox, images: Tensor) -> NDArray[np.float64]:
        cosines = pairwise_cosines(view.embed_views(images, self.views))
        if self.pairs == "mean":
            return cosines.mean(axis=1, keepdims=True)
        return cosines[:, :3] if self.pairs == "top3" else cosines
