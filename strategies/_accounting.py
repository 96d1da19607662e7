"""Privacy of clients over rounds of a noised sum of their clipped updates."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import gammaln, logsumexp

from fedmia.defenses.accounting import least_noise, renyi_epsilon
from fedmia.lowerbounds.gdp import epsilon_at, mu_at

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512)
LEAST, MOST = 1e-3, 1e6  # noise multipliers that are looked for


def composed_epsilon(noise: float, rounds: int, delta: float, sensitivity: float = 1.0) -> float:
    """Epsilon at `delta` of `rounds` Gaussian releases, exact (Dong et al., 2019).

    Args:
        noise: deviation over C, > 0. sensitivity: of the sum over C: 1 where a client's update is
            put to nothing, 2 where it becomes another.
    """
    return epsilon_at(sensitivity * math.sqrt(rounds) / noise, delta)


def composed_noise(epsilon: float, rounds: int, delta: float, sensitivity: float = 1.0) -> float:
    """The noise at which `composed_epsilon` gives `epsilon`."""
    return sensitivity * math.sqrt(rounds) / mu_at(epsilon, delta)


def sampled_epsilon(noise: float, rate: float, rounds: int, delta: float) -> float:
    """Epsilon at `delta` of `rounds` Gaussian releases, each of a secret cohort of a fixed size
    drawn without replacement, one client replaced by another (Wang et al., 2019, Theorem 9; to
    epsilon by Balle et al., 2020, Theorem 21).

    Args:
        rate: size of the cohort over that of the population, in (0, 1].
    """
    spent = np.array([rounds * sampled_renyi(noise / 2, rate, order) for order in ORDERS])
    return renyi_epsilon(np.array(ORDERS, dtype=float), spent, delta)


def sampled_renyi(noise: float, rate: float, order: int) -> float:
    """Renyi divergence of `order` >= 2 of one Gaussian release of a cohort drawn without
    replacement; `noise`: deviation over the sensitivity."""
    j = np.arange(2, order + 1, dtype=float)
    ways = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    second = 1 / noise**2  # of the Gaussian, at order 2
    least = second + math.log(2)  # min{4 (e^eps(2) - 1), 2 e^eps(2)}
    if second < math.log(2):
        least = math.log(4 * math.expm1(second))
    factors = (j - 1) * j / (2 * noise**2) + math.log(2)
    factors[0] = least
    terms = j * math.log(rate) + ways + factors
    return float(logsumexp(np.concatenate([[0.0], terms]))) / (order - 1)


@functools.lru_cache(maxsize=8)  # every round asks again
def sampled_noise(epsilon: float, rate: float, rounds: int, delta: float) -> float:
    """The least noise in [LEAST, MOST] at which `sampled_epsilon` gives at most `epsilon`; infinite
    where none does: at a rate near 1 the theorem's factor 2 does not go away."""
    if sampled_epsilon(MOST, rate, rounds, delta) > epsilon:
        return math.inf
    return least_noise(
        lambda z: sampled_epsilon(z, rate, rounds, delta), epsilon, LEAST, MOST, 1e-6
    )
