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
from fedmia.attacks.base import DatasetAttack, Known, Scores, Suspect
from fedmia.data.images import IntArray
from fedmia.options.option import option
from fedmia.threat import BlackBox, Threat

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

DRAWS = 1999  # at least, so that a p-value resolves 1 / 2000
STATISTICS = ("unary", "relationship", "likelihood")
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
        "what is compared: how alike an image's views are (unary), also how alike they see known "
        "images (relationship), or its density under a mixture fitted on half of the set "
        "(likelihood)",
        choices=STATISTICS,
    )
    views: int = option(24, "augmented views an image", ge=2)
    components: int = option(
        20, "Gaussians of the mixture, at most a quarter of the images that it is fitted on", ge=1
    )

    @property
    def learns(self) -> bool:
        return self.statistic != "unary"

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        self._known = known

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
    ) -> list[SetComparison]:
        fits = self.statistic == "likelihood"
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
            sides = mine, classes[suspected], rest, classes[others]
            comparisons.append(exchange_test(*sides, rng, most))
        return comparisons

    def relations(self, view: BlackBox, images: Tensor) -> Scores:
        """How alike an image's views are.

        Args:
            view: of the encoder that is asked.
            images: uint8 (N, C, H, W).

        Returns:
            (N,) unary relationship of each image, under `relationship` less its binary one.
        """
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


@dataclass(frozen=True)
class SetComparison:
    """One suspected set against others of its classes.

    Attributes:
        p_value: one-sided, in (0, 1]; small where the set's values are higher. None: no image of
            the set has a class that another one has.
        difference: mean over the set's images of the value less the mean of the others of the
            same class; None likewise.
        n: images of the set that were tested.
        others: those of their classes beside them.
    """

    p_value: float | None
    difference: float | None
    n: int
    others: int


def exchange_test(
    values: Scores,
    classes: IntArray,
    others: Scores,
    other_classes: IntArray,
    rng: np.random.Generator,
    most: int = DRAWS,
) -> SetComparison:
    """Permutation test of `difference`, images changing sides within their class alone.

    It is exact whatever the values' distribution, wherever images of one class are exchangeable:
    a set of few classes is compared with its like. (A t-test, as in both papers, asks whether two
    means differ, and those of two class mixes do.)

    Args:
        values, classes: (n,) of the suspected set.
        others, other_classes: (m,) of the others.
        rng: of the draws.
        most: draws where no one before was as high, DRAWS at a time: it stays a p-value, as that
            of Besag and Clifford (1991), who stop at a number of those as high.

    Returns:
        the p-value, the difference, and how many images of either side were tested.
    """
    kinds = np.intersect1d(classes, other_classes)
    n, m = int(np.isin(classes, kinds).sum()), int(np.isin(other_classes, kinds).sum())
    if not n:
        return SetComparison(None, None, 0, 0)
    pools = list[tuple[Scores, int, float]]()
    observed = 0.0
    for kind in kinds:
        mine, rest = values[classes == kind], others[other_classes == kind]
        pool, k = np.concatenate([mine, rest]), len(mine)
        # mean(mine) - mean(rest) in terms of the mean of mine alone
        weight, middle = k * len(pool) / len(rest), pool.mean()
        observed += weight * (mine.mean() - middle)
        pools.append((pool, k, weight))
    reached = draws = 0
    further = rng.spawn(1)[0]  # so that how long one set is drawn for moves no other's p-value
    while draws == 0 or (reached == 0 and draws < most):
        differences = np.zeros(DRAWS)
        for pool, k, weight in pools:
            differences += weight * (drawn_means(pool, k, further if draws else rng) - pool.mean())
        reached += int((differences >= observed - 1e-9 * max(abs(observed), 1e-300)).sum())
        draws += DRAWS
    return SetComparison((1 + reached) / (1 + draws), observed / n, n, m)


def drawn_means(pool: Scores, count: int, rng: np.random.Generator) -> Scores:
    """Means of `count` of the pool, drawn without replacement (Fisher and Yates).

    Args:
        pool: values, `(n,)`.
        count: from 1 to n.
        rng: of the draws.

    Returns:
        means, `(DRAWS,)`.
    """
    total = np.zeros(DRAWS)
    if count**2 > len(pool):
        rows, mixed = np.arange(DRAWS), np.tile(pool, (DRAWS, 1))
        for at in range(count):
            picked = rng.integers(at, len(pool), DRAWS)
            total += mixed[rows, picked]
            mixed[rows, picked] = mixed[:, at]
        return np.asarray(total / count)
    # The same swaps of few images: only what they have moved is remembered.
    moved = list[tuple[IntArray, Scores]]()
    for at in range(count):
        picked = rng.integers(at, len(pool), DRAWS)
        value, first = pool[picked], np.full(DRAWS, pool[at])
        for where, occupied in moved:
            value = np.where(where == picked, occupied, value)
            first = np.where(where == at, occupied, first)
        total += value
        moved.append((picked, first))
    return np.asarray(total / count)
