"""Gaussian mechanism on the client's update, with its exact composition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.defenses._noise import ReleaseNoise
from fedmia.lowerbounds.gdp import epsilon_at, mu_at
from fedmia.options.option import option


@dataclass(frozen=True)
class Gaussian(ReleaseNoise):
    """Gaussian noise of deviation sigma on the update clipped in L2: exact (epsilon, delta).

    T rounds are mu-GDP with mu = 2C sqrt(T) / sigma; their epsilon at `delta` is exact for every
    budget, where the classical sigma = 2C sqrt(2 ln(1.25/delta)) / epsilon needs epsilon <= 1.
    """

    paper: ClassVar[str] = "Dwork and Roth, 2014; Balle and Wang, ICML 2018"
    order: ClassVar[int] = 2
    default_clip: ClassVar[float] = 0.015
    default_scale: ClassVar[float] = 0.01
    audit: ClassVar[str] = "own-runs-gdp"
    strengths: ClassVar[tuple[float, ...]] = (0.01, 0.03, 0.1, 0.2)

    delta: float = option(1e-5, "delta of (epsilon, delta)-DP, over all rounds", gt=0, lt=1)

    def draw(self, rng: np.random.Generator, scale: float, count: int) -> NDArray[np.float64]:
        return rng.normal(0.0, scale, count)

    def deviation(self, scale: float) -> float:
        return scale

    def scale_for(self, epsilon: float, sensitivity: float, rounds: int) -> float:
        return sensitivity * math.sqrt(rounds) / mu_at(epsilon, self.delta)

    def spent(self, sensitivity: float, scale: float, rounds: int) -> float:
        return epsilon_at(sensitivity * math.sqrt(rounds) / scale, self.delta)
