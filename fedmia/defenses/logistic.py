"""Additive logistic mechanism on the client's update (Yang et al., 2022, Theorem 4.1)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.defenses._noise import ReleaseNoise


class Logistic(ReleaseNoise):
    """Logistic noise of scale s on the update clipped in L1: epsilon = 2C/s a round, delta 0.

    The paper noises a fine-tuned head once; here every round's update is noised and rounds add up.
    """

    paper: ClassVar[str] = "Yang, Gohari, Topcu, 2022"

    def draw(self, rng: np.random.Generator, scale: float, count: int) -> NDArray[np.float64]:
        return rng.logistic(0.0, scale, count)

    def deviation(self, scale: float) -> float:
        return scale * math.pi / math.sqrt(3)
