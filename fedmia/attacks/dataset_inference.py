"""Dataset inference: the owner of a whole set of images asks whether an encoder learnt from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks._exchange import DRAWS, exchange_subjects, exchange_test
from fedmia.attacks.base import DatasetAttack, Known, Scores, Suspect
from fedmia.attacks.dov4mm import DOV4MM
from fedmia.data.images import IntArray
from fedmia.records import SetComparison
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.threat import BlackBox, Threat

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

STATISTICS = ("unary", "relationship", "masked", "likelihood")
# Draws where no one was as high: the smallest p-value of all sets stays under 0.05 when it is
# corrected for them and for the report's other attacks.
ENOUGH, LEAST = 200, 10 * DRAWS  # a set, and of few sets
CHUNK = 128  # images whose views meet those of all the known at once


@dataclass
class DatasetInference(DatasetAttack):
    """Whether a client's whole data set was trained on: one p-value, against others of its classes.

    The papers compare means by a t-test: of the likelihoods of held-out images, or of relationships
    in many draws from the same images. Here images change sides within their class.
    """

    paper: ClassVar[str] = (
        "Dziedzic et al., NeurIPS 2022 (likelihood); Xie et al., DOV4CL, ICLR 2025 (relationship)"
    )
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    main: ClassVar[bool] = True
    by_round: ClassVar[bool] = False
    looks_at: ClassVar[tuple[str, ...]] = ("similarity",)

    statistic: str = option(
        "unary",
        "what is compared: how alike views of an image are (unary), or see known images "
        "(relationship), how masked views tell it (masked: dov4mm), or its density under a "
        "mixture (likelihood)",
        choices=STATISTICS,
    )
    views: int = option(24, "augmented views an image", ge=2)
    components: int = option(
        20, "Gaussians of the mixture, at most a quarter of the images that it is fitted on", ge=1,
        needs=("statistic", "likelihood"),
    )  # fmt: skip

    @property
    def learns(self) -> bool:
        return self.statistic != "unary"

    @property
    def learns_from_members(self) -> bool:
        return self.statistic in ("masked", "likelihood")

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        self._known = known
        if self.statistic == "masked":
            self._masked = DOV4MM(masks=self.views)
            self._masked.fit(view, known, rng)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        if self.statistic != "likelihood":
            return self.relations(view, images)
        mixture = self._mixture(_unit(view, self._known.members), np.random.default_rng(0))
        return np.asarray(mixture.score_samples(_unit(view, images)))

    def infer(
        self,
        view: BlackBox,
        images: Tensor,
        classes: IntArray,
        suspects: Sequence[Suspect],
        rng: np.random.Generator,
        subjects: IntArray | None = None,
    ) -> list[SetComparison]:
        fits = self.statistic == "likelihood"
        if fits and subjects is not None:
            raise InputError(
                f"{opt('statistic', 'likelihood')} fits half of a set, and the other half of a "
                f"subject is like it without training: must be {', '.join(STATISTICS[:-1])}"
            )
        rows = _unit(view, images) if fits else self.relations(view, images)
        # The test needs enough permutations to reach a p-value below the corrected level.
        most = max(LEAST, ENOUGH * len(suspects))
        comparisons = []
        for suspected, others in suspects:
            values = rows
            if fits:  # D_P1 fits the density, D_P2 is compared with D_N
                half, suspected = np.array_split(rng.permutation(suspected), 2)
                values = self._mixture(rows[half], rng).score_samples(rows)
            mine, rest = values[suspected], values[others]
            if subjects is not None:
                own, theirs = subjects[suspected], subjects[others]
                comparisons.append(exchange_subjects(mine, own, rest, theirs, rng, most))
                continue
            sides = mine, classes[suspected], rest, classes[others]
            comparisons.append(exchange_test(*sides, rng, most))
        return comparisons

    def relations(self, view: BlackBox, images: Tensor) -> Scores:
        """How alike an image's views are, or how well its embedding is told from masked ones.

        Args:
            view: of the encoder that is asked.
            images: uint8 (N, C, H, W).

        Returns:
            (N,) unary relationship of each image, under `relationship` less its binary one; under
            `masked` the scores of `dov4mm`.
        """
        if self.statistic == "masked":
            return self._masked.score(view, images)
        rows = view.embed_views(images, self.views).double()
        unary = pairwise_cosines(rows).mean(axis=1)
        if self.statistic == "unary":
            return unary
        known = F.normalize(view.embed_views(self._known.nonmembers, self.views).double(), dim=2)
        parts = F.normalize(rows, dim=2).split(CHUNK)
        return np.asarray(unary - torch.cat([binary(part, known) for part in parts]).numpy())

    def _mixture(self, rows: Scores, rng: np.random.Generator) -> GaussianMixture:
        count = max(min(self.components, len(rows) // 4), 1)
        from sklearn.mixture import GaussianMixture

        mixture = GaussianMixture(
            count, covariance_type="diag", max_iter=1000, random_state=int(rng.integers(1 << 31))
        )
        # One image has no spread: it is fitted as its own copy.
        return mixture.fit(rows if len(rows) > 1 else np.repeat(rows, 2, axis=0))


def binary(rows: Tensor, known: Tensor) -> Tensor:
    """Mean absolute change of an image's cosine to a known one from view to view.

    Args:
        rows: unit vectors of the images' views, `(N, V, P)`.
        known: unit vectors of the known images' views, `(K, V, P)`.

    Returns:
        mean over all pairs of views and all known images, `(N,)`.
    """
    views = rows.shape[1]
    ordered = torch.einsum("nvp,kvp->nkv", rows, known).sort(dim=2).values
    # sum over i < j of |c_i - c_j| is a weighted sum of the sorted cosines
    weights = 2 * torch.arange(views, dtype=rows.dtype) - (views - 1)
    return (ordered @ weights).mean(dim=1) / (views * (views - 1) / 2)


def _unit(view: BlackBox, images: Tensor) -> Scores:
    """(N, P) pooled features of the plain images, of length 1."""
    return F.normalize(view.embed_plain(images, "avgpool").double(), dim=1).numpy()
