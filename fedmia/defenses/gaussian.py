"""Gaussian mechanism on the client's update: exact composition, or the classical calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmia.defenses._noise import ReleaseNoise
from fedmia.lowerbounds.gdp import epsilon_at, mu_at
from fedmia.records.privacy import Epsilon
from fedmia.settings import option

CALIBRATIONS = ("analytic", "classical")
CLASSICAL = (
    "Calibration: sigma = Delta_2 sqrt(2 ln(1.25 / delta)) / epsilon, which Theorem A.1 of Dwork "
    "and Roth (2014) proves for an epsilon below 1 a release. "
)
PROVED = "Here it is {each:.3g} a release; epsilons and deltas of releases add. "
UNPROVED = "Here it is {each:.3g} a release: the theorem guarantees nothing. "
EXACT = "Exactly, this noise spends epsilon {exact:.3g} (Balle and Wang, 2018)."


def classical_factor(delta: float, releases: int = 1) -> float:
    """sigma epsilon / Delta_2 of one release by the classical calibration, as Yang et al. (2022)
    have it (Sec. 3.2): sqrt(2 ln(1.25 T / delta)), where each of T releases has delta / T.

    Args:
        delta: of all releases together, in (0, 1).
        releases: T, at least 1.

    Returns:
        The factor, over 0.
    """
    return math.sqrt(2 * math.log(1.25 * releases / delta))


def exact_epsilon(epsilon: float, delta: float, releases: int = 1) -> float:
    """Epsilon at `delta` that noise by the classical calibration spends, exactly.

    Args:
        epsilon: that it was calibrated to, of all releases together, over 0.
        delta: of all releases together, in (0, 1).
        releases: T, at least 1.

    Returns:
        Epsilon of all releases together; over `epsilon` where the calibration is too small.
    """
    mu = epsilon / (math.sqrt(releases) * classical_factor(delta, releases))
    return epsilon_at(mu, delta)


@dataclass(frozen=True)
class Gaussian(ReleaseNoise):
    """Gaussian noise of deviation sigma on the update clipped in L2: exact (epsilon, delta).

    T rounds are mu-GDP with mu = 2C sqrt(T) / sigma; their epsilon at `delta` is exact for every
    budget. The classical calibration is that of the additive logistic paper: each of T rounds has
    epsilon / T and delta / T, sigma = 2C sqrt(2 ln(1.25 T / delta)) T / epsilon. It is a guarantee
    for an epsilon below 1 a round only; else the statement is heuristic and says so.
    """

    paper: ClassVar[str] = "Dwork and Roth, 2014; Balle and Wang, ICML 2018"
    order: ClassVar[int] = 2
    default_clip: ClassVar[float] = 0.015
    default_scale: ClassVar[float] = 0.01
    audit: ClassVar[str] = "own-runs-gdp"
    strengths: ClassVar[tuple[float, ...]] = (0.01, 0.03, 0.1, 0.2)

    delta: float = option(1e-5, "delta of (epsilon, delta)-DP, over all rounds", gt=0, lt=1)
    calibration: str = option(
        "analytic",
        "sigma of an epsilon: exact for every epsilon, or classical: Delta sqrt(2 ln(1.25/delta)) "
        "/ epsilon, proved for an epsilon below 1 a round",
        choices=CALIBRATIONS,
    )

    def draw(self, rng: np.random.Generator, scale: float, count: int) -> NDArray[np.float64]:
        return rng.normal(0.0, scale, count)

    def deviation(self, scale: float) -> float:
        return scale

    def scale_for(self, epsilon: float, sensitivity: float, rounds: int) -> float:
        if self.calibration == "classical":
            return sensitivity * classical_factor(self.delta, rounds) * rounds / epsilon
        return sensitivity * math.sqrt(rounds) / mu_at(epsilon, self.delta)

    def spent(self, sensitivity: float, scale: float, rounds: int) -> float:
        if self.calibration == "classical":
            return sensitivity * classical_factor(self.delta, rounds) * rounds / scale
        return epsilon_at(sensitivity * math.sqrt(rounds) / scale, self.delta)

    def privacy(self, memory: dict[str, Any]) -> Epsilon | None:
        statement = super().privacy(memory)
        if statement is None or self.calibration == "analytic" or not statement.value:
            return statement
        rounds, each = statement.rounds, statement.value / statement.rounds
        unproved = statement.standing == "guaranteed" and each >= 1
        exact = exact_epsilon(statement.value, self.delta, rounds)
        caveat = CLASSICAL + (PROVED if each < 1 else UNPROVED).format(each=each)
        return replace(
            statement,
            standing="heuristic" if unproved else statement.standing,
            assumptions=f"{statement.assumptions} {caveat}{EXACT.format(exact=exact)}",
        )
