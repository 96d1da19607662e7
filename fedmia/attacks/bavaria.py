"""BaVarIA: LiRA with a prior on each image's mean and variance, for few shadows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._reference import GaussianReferenceAttack, mean_and_sum
from fedmia.attacks.base import Known, Scores
from fedmia.settings import option
from fedmia.threat import BlackBox

LEAST = 1e-12  # variance; below it is rounding
MANY = 1e6  # shadows that a prior counts as, from which on images do not differ in variance


class Prior:
    """Normal-inverse-gamma: what is known of an image's Gaussian before its own shadows are read.

    Args:
        mean: of the images' means.
        weight: shadows that it counts as.
        variance: typical variance of an image's signal over shadows.
        freedom: shadows that it counts as.
    """

    def __init__(self, mean: float, weight: float, variance: float, freedom: float) -> None:
        self.mean, self.weight = mean, weight
        self.variance, self.freedom = variance, freedom

    def predict(self, rows: Scores, which: NDArray[np.bool_]) -> tuple[Scores, Scores, Scores]:
        """Student's t of the next model's signal of each image.

        Args:
            rows: signals under shadows, `(R, N)`.
            which: those that count, `(R, N)`.

        Returns:
            location, scale and degrees of freedom, `(N,)` each.
        """
        count = which.sum(axis=0)
        means, squares = mean_and_sum(rows, which)
        weight, freedom = self.weight + count, self.freedom + count
        location = (self.weight * self.mean + count * means) / weight
        apart = self.weight * count / weight * (means - self.mean) ** 2
        variance = (self.freedom * self.variance + squares + apart) / freedom
        return location, np.sqrt(variance * (1 + 1 / weight)), freedom


@dataclass
class BaVarIA(GaussianReferenceAttack):
    """LiRA whose Gaussians have a conjugate prior: Student-t predictive likelihoods of the signal.

    A prior (normal-inverse-gamma) on an image's mean and variance takes the place of LiRA's choice
    between its own deviation and a pooled one. The score is the log ratio of the predictive
    likelihoods with and without the image (online). Offline it is the signed root of twice the log
    of how much likelier the mode is than the signal: of a Gaussian LiRA's deviations above the
    mean, of a t fewer of them.

    After the paper's abstract, as its text was not at hand. It names the prior, the t and the
    Gaussian predictive, and that nothing is tuned. Estimating the prior from the spread over
    images that are not scored (Smyth, 2004), and the offline score, are fedmia's.
    """

    paper: ClassVar[str] = (
        "Brännvall, Exponential-Family Membership Inference, arXiv 2603.11799 (abstract)"
    )

    predictive: str = option(
        "t", "likelihood: Student's t, or a Gaussian of its scale", choices=("t", "normal")
    )
    prior: float | None = option(
        None,
        "shadows that the typical variance counts as (none: as many as the differences between "
        "the variances of images say)",
        gt=0,
    )

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Estimate the priors over images that are not scored.

        Raises:
            InputError: the view has no shadows.
        """
        super().fit(view, known, rng)
        rows, inside = self.read_pool(view)
        self._priors = [estimate_prior(rows, which, self.prior) for which in (inside, ~inside)]

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        """(N,) log ratio of the predictive likelihoods; offline: how unlikely so high a signal is
        without the image.

        Raises:
            InputError: too few shadows cover an image.
        """
        x, rows, inside = self.read_scaled(view, images, 1)
        out = self._log_likelihood(x, rows, ~inside, 1)
        if self._online:
            return self._log_likelihood(x, rows, inside, 0)[0] - out[0]
        return np.asarray(np.sign(out[1]) * np.sqrt(2 * (out[2] - out[0])))

    def _log_likelihood(
        self, x: Scores, rows: Scores, which: NDArray[np.bool_], side: int
    ) -> tuple[Scores, Scores, Scores]:
        """That of x (N,), how many scales x lies above the predictive's mode, and that of it."""
        prior = self._priors[side] or self._priors[1 - side] or Prior(0.0, 0.0, 1.0, MANY)
        location, scale, freedom = prior.predict(rows, which)
        z, law = (x - location) / scale, scipy.stats
        log = law.norm.logpdf if self.predictive == "normal" else partial(law.t.logpdf, df=freedom)
        return log(z) - np.log(scale), z, log(np.zeros_like(z)) - np.log(scale)


def estimate_prior(
    rows: Scores, which: NDArray[np.bool_], freedom: float | None = None
) -> Prior | None:
    """The prior of images whose signals under shadows are rows (R, N), of those that `which`
    (R, N) picks.

    Args:
        rows: signals.
        which: shadows of one kind.
        freedom: of the prior; None: estimated.

    Returns:
        the prior; None where no image has two such shadows.
    """
    count = which.sum(axis=0)
    several, some = count > 1, count > 0
    if not several.any():
        return None
    means, squares = mean_and_sum(rows, which)
    pooled = max(squares.sum() / (count[several] - 1).sum(), LEAST)
    between = means[some].var() - pooled * (1 / count[some]).mean()
    # Of each image the log of a variance, about which a chi-square varies.
    half = (count[several] - 1) / 2
    logs = np.log(np.maximum(squares[several] / (2 * half), LEAST))
    logs += np.log(half) - scipy.special.digamma(half)
    if freedom is None:
        excess = logs.var(ddof=min(1, len(logs) - 1)) - scipy.special.polygamma(1, half).mean()
        freedom = invert_trigamma(float(excess))
    typical = np.exp(logs.mean() + scipy.special.digamma(freedom / 2) - np.log(freedom / 2))
    weight = pooled / max(between, pooled / MANY)
    return Prior(float(means[some].mean()), float(weight), float(typical), freedom)


def invert_trigamma(excess: float) -> float:
    """Degrees of freedom of a prior under which logs of variances differ by `excess`, to MANY."""
    if excess <= scipy.special.polygamma(1, MANY / 2):
        return MANY
    solve = scipy.optimize.brentq(
        lambda half: scipy.special.polygamma(1, half) - excess, 1e-4, MANY / 2
    )
    return 2 * float(solve)
