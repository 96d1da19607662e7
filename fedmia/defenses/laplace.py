"""Laplace mechanism on the client's update (Dwork et al., 2006)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.defenses._noise import ReleaseNoise


@dataclass(frozen=True)
class Laplace(ReleaseNoise):
    """Laplace noise of scale b on the update clipped in L1: epsilon = 2C/b a round, delta 0."""

    paper: ClassVar[str] = "Dwork et al., TCC 2006"
    order: ClassVar[int] = 1
    default_clip: ClassVar[float] = 0.01
    default_scale: ClassVar[float] = 0.005

    def draw(self, rng: np.random.Generator, scale: float, count: int) -> NDArray[np.float64]:
        return rng.laplace(0.0, scale, count)

    def deviation(self, scale: float) -> float:
        return scale * math.sqrt(2)

    def scale_for(self, sensitivity: float, rounds: int) -> float:
        assert self.epsilon is not None
        return sensitivity * rounds / self.epsilon

    def spent(self, sensitivity: float, scale: float, rounds: int) -> float:
        return rounds * sensitivity / scale
