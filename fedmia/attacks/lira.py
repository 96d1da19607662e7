"""LiRA without labels: an image's signal against those of reference models, as Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._measure import logit
from fedmia.attacks._reference import (
    GaussianReferenceAttack,
    RoundReferenceAttack,
    mean_and_sum,
    pooled_deviation,
)
from fedmia.attacks.base import Known, Scores
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import BlackBox

FEW = 32  # shadows, below which one image's own deviation is not to be trusted
LEAST = 1e-6  # deviation; below it is rounding


@dataclass
class LiRA(GaussianReferenceAttack):
    """Likelihood ratio attack: an image's signal under Gaussians of shadows with and without it.

    Offline, the score is (x - mean_out) / deviation. Its normal cdf is the paper's 1 - Pr[Z > x],
    which rounds to 1 where the attack is surest; the order is the same. Online it is
    log N(x; in) - log N(x; out). Of one shadow offline, x less the shadow's signal remains: the
    difficulty calibration of Watson et al. (2022), which needs no deviation.
    """

    paper: ClassVar[str] = (
        "Carlini et al., Membership Inference Attacks From First Principles, Alg. 1"
    )

    variance: str = option(
        "auto",
        f"of an image's signal over shadows: its own (individual), or one pooled over images that "
        f"are not scored (fixed); auto: fixed below {FEW} shadows",
        choices=("auto", "individual", "fixed"),
    )

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Pool the deviation over the shadows' images where it is fixed, or shadows are few.

        Raises:
            InputError: the view has no shadows.
        """
        super().fit(view, known, rng)
        self._deviations = None
        if self.variance == "fixed" or (self.variance == "auto" and len(view.shadows) < FEW):
            self._deviations = self._pooled(view)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        """Log ratio (N,) of the signal's likelihoods inside and outside; offline: how many
        deviations it lies above those outside.

        Raises:
            InputError: too few shadows cover an image.
        """
        x, rows, inside = self.read_scaled(view, images, 1 if self._deviations else 2)
        out = self._gaussian(rows, ~inside, 1)
        if not self._online:
            return np.asarray((x - out[0]) / out[1])
        return log_normal(x, *self._gaussian(rows, inside, 0)) - log_normal(x, *out)

    def _gaussian(self, rows: Scores, which: NDArray[np.bool_], side: int) -> tuple[Scores, Scores]:
        """Mean and deviation (N,) of the shadows that `which` (R, N) picks."""
        mean, squares = mean_and_sum(rows, which)
        if self._deviations:
            return mean, np.full(len(mean), self._deviations[side])
        return mean, np.maximum(np.sqrt(squares / which.sum(axis=0)), LEAST)

    def _pooled(self, view: BlackBox) -> tuple[float, float]:
        """Deviations with and without the image, over known images and some of the shadows' own."""
        rows, inside = self.read_pool(view)
        deviations = [pooled_deviation(rows, which) for which in (inside, ~inside)]
        # Where no image has two shadows of a kind, the other kind's is taken; where neither has, 1,
        # which changes no order.
        usable = [max(f, LEAST) if f is not None else None for f in deviations]
        return usable[0] or usable[1] or 1.0, usable[1] or usable[0] or 1.0


@dataclass
class LiRARounds(RoundReferenceAttack):
    """LiRA from rounds: how far an image's signal stands out from that of the earlier rounds.

    The signals of all images drift from round to round, so each model's are first brought to mean
    0 and deviation 1 on the known images, members and non-members alike. The score is then offline
    LiRA's, (x - mean) / deviation over the references. As they are few, an image's variance is
    drawn towards that of the known images: (prior v_known + sum of squares) / (prior + R - 1). One
    reference has no variance: the score is then the gain itself.
    """

    name: ClassVar[str] = "lira-rounds"
    paper: ClassVar[str] = (
        "Carlini et al., Membership Inference Attacks From First Principles, Alg. 1; references by "
        "round are fedmia's"
    )

    prior: float = option(4.0, "rounds that the known images' variance counts as", gt=0)

    @property
    def learns(self) -> bool:
        return False

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Learn the scale of each round's model, and the typical deviation, on the known images.

        Raises:
            InputError: fewer than 2 known images, or no model of a round.
        """
        super().fit(view, known, rng)
        if len(self._others) < 2:
            raise InputError(f"{self.name} needs at least 2 known images, got {len(self._others)}")
        rows = self._logits(view, self._others)
        spread = rows.std(axis=1)
        self._centre, self._deviation = rows.mean(axis=1), np.where(spread > 0, spread, 1.0)
        references = self._standard(rows)[1:]
        self._typical = pooled_deviation(references, np.ones(references.shape, dtype=bool))

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        rows = self._standard(self._logits(view, images))
        mean, squares = mean_and_sum(rows[1:], np.ones(rows[1:].shape, dtype=bool))
        gain = np.asarray(rows[0] - mean)
        if not self._typical:
            return gain
        freedom = len(rows) - 2
        variance = (self.prior * self._typical**2 + squares) / (self.prior + freedom)
        return np.asarray(gain / np.sqrt(variance))

    def _logits(self, view: BlackBox, images: Tensor) -> Scores:
        """(1 + R, N): of the last model, then of the references."""
        target, references, _ = self.read(view, images)
        return logit(np.concatenate([target[None], references]))

    def _standard(self, rows: Scores) -> Scores:
        return np.asarray((rows - self._centre[:, None]) / self._deviation[:, None])


def log_normal(x: Scores, mean: Scores, deviation: Scores) -> Scores:
    """(N,) log N(x; mean, deviation^2) without its constant."""
    return np.asarray(-(((x - mean) / deviation) ** 2) / 2 - np.log(deviation))
