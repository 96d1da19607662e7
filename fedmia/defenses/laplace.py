"""Laplace mechanism on the client's update (Dwork et al., 2006)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.defenses._noise import ReleaseNoise


class Laplace(ReleaseNoise):
    """Laplace noise of scale b on the update clipped in L1: epsilon = 2C/b a round, delta 0."""

    paper: ClassVar[str] = "Dwork et al., TCC 2006"

    def draw(self, rng: np.random.Generator, scale: float, count: int) -> NDArray[np.float64]:
        return rng.laplace(0.0, scale, count)

    def deviation(self, scale: float) -> float:
        return scale * math.sqrt(2)
