"""LpLA: the length of an image's feature vector, and how likely it is among members."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.settings import option
from fedmia.settings.errors import InputError, option_error
from fedmia.threat import OUTPUTS, BlackBox, Threat

LEAST_P = 0.1  # below it, the 1/p-th power of a sum of D terms leaves the range of a double
FLOOR = 1e-6  # least standard deviation, relative to the norms; below it is rounding


@dataclass
class LpLA(Attack):
    """Embedding Lp-norm likelihood attack: p-norm of the features under two Gaussians.

    The score is log N(L; members) - log N(L; non-members) at equal priors (Eq. 13-15): above 0
    where the paper says member. It is quadratic in the norm where the two spreads differ, so both
    tails may belong to one side. Where the norms of the known images do not differ (p = 0 on
    signed features counts every entry, p = 2 on normalised ones is 1), every score is 0.

    Eq. 12 takes no absolute values and leaves p = 0 undefined: |v| is meant, and p = 0 counts the
    entries above `tolerance`. One query an image.
    """

    paper: ClassVar[str] = "Sun et al., When Better Features Mean Greater Risks, Eq. 12-15"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("norm",)

    p: float = option(
        2.0, f"order of the norm: 0 (entries that are not zero) or {LEAST_P} to 5", ge=0, le=5
    )
    tolerance: float = option(
        1e-6, "p = 0: entries up to this size count as zero", ge=0, needs=("p", 0.0)
    )
    reading: str = option(
        "likelihood",
        "score: log-likelihood ratio of two Gaussians, or the norm itself beyond the middle of the "
        "two means (threshold), its direction chosen on the known images",
        choices=("likelihood", "threshold"),
    )
    nonmembers: str = option(
        "held-out",
        "known non-members, or images of uniform random pixels, as many as known members: these "
        "need no known non-member, and tell noise from images more than members from others",
        choices=("held-out", "random-pixels"),
    )
    layer: str = option("avgpool", "output whose norm is taken", choices=OUTPUTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.p < LEAST_P:
            raise option_error(self, f"p: {self.p}, must be 0 or from {LEAST_P} to 5")

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Fit a Gaussian to the norms of known members, and one to those of the other side.

        Raises:
            InputError: fewer than 2 known images of a side that it reads.
        """
        random = self.nonmembers == "random-pixels"
        if len(known.members) < 2 or (not random and len(known.nonmembers) < 2):
            raise InputError(
                f"lpla needs at least 2 known members{'' if random else ' and non-members'}, got "
                f"{len(known.members)} and {len(known.nonmembers)}"
            )
        others = random_pixels(known.members, rng) if random else known.nonmembers
        both = self._norms(view, torch.cat([known.members, others]))
        self._fitted = NormGaussians(both[: len(known.members)], both[len(known.members) :])

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        norms = self._norms(view, images)
        if not self._fitted.varies:
            return np.zeros(len(norms))
        if self.reading == "threshold":
            return self._fitted.beyond_middle(norms)
        return self._fitted.log_ratio(norms)

    def _norms(self, view: BlackBox, images: Tensor) -> Scores:
        return lp_norms(view.embed_plain(images, self.layer), self.p, self.tolerance)


def lp_norms(vectors: Tensor, p: float, tolerance: float = 0.0) -> Scores:
    """(N,) p-norms of vectors (N, P), (sum |v|^p)^(1/p); at p = 0 how many |v| > `tolerance`."""
    sizes = vectors.double().abs()
    count = (sizes > tolerance).sum(dim=1).double()
    return np.asarray((torch.linalg.vector_norm(sizes, ord=p, dim=1) if p else count).numpy())


def random_pixels(like: Tensor, rng: np.random.Generator) -> Tensor:
    """uint8 images of uniform random pixels, as many as `like` and of its shape."""
    return torch.from_numpy(rng.integers(0, 256, size=tuple(like.shape), dtype=np.uint8))


class NormGaussians:
    """The norms of both sides as Gaussians (Eq. 13): means and unbiased (k - 1) deviations.

    A deviation below `FLOOR` times the largest norm is rounding and is raised to it.

    Args:
        members: norms, `(M,)`, M >= 2.
        others: norms of non-members, `(K,)`, K >= 2.

    Attributes:
        varies: whether the norms differ by more than rounding.
    """

    def __init__(self, members: Scores, others: Scores) -> None:
        both = np.concatenate([members, others])
        least = FLOOR * float(both.max())
        self._mean, self._mean_other = float(members.mean()), float(others.mean())
        self._sigma = max(float(members.std(ddof=1)), least)
        self._sigma_other = max(float(others.std(ddof=1)), least)
        self.varies = float(np.ptp(both)) > least

    def log_ratio(self, norms: Scores) -> Scores:
        """(N,) log of Eq. 14's likelihoods of the norms, members' less non-members'."""
        z = (norms - self._mean) / self._sigma
        z_other = (norms - self._mean_other) / self._sigma_other
        return (z_other**2 - z**2) / 2 + math.log(self._sigma_other / self._sigma)

    def beyond_middle(self, norms: Scores) -> Scores:
        """(N,) distance of the norms from the middle of the two means, positive on the members'
        side (Sec. 4.4)."""
        middle = (self._mean + self._mean_other) / 2
        return (norms - middle) * (1.0 if self._mean > self._mean_other else -1.0)
