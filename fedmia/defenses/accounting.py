"""Epsilon of noisy SGD on Poisson samples, by Opacus's accountants.

Opacus takes seconds to import, so that is left to the functions that need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmia.lowerbounds.gdp import epsilon_at
from fedmia.settings.errors import InputError

# Steps already taken: (noise multiplier, sample rate, how many).
History = list[tuple[float, float, int]]

ACCOUNTANTS = ("rdp", "prv", "gdp")
# Few fractional orders, which are slow; enough for epsilon from 0.01 to 1e5.
ORDERS = [
    1.0003, 1.003, 1.02, 1.1, 1.3, 1.6, *range(2, 13), *range(14, 64, 2), 96, 128, 256, 512, 1024
]  # fmt: skip
PRV_LIMIT = 100.0  # beyond it the grid of the PRV accountant takes minutes and gigabytes
SMALLEST, LARGEST = 1e-2, 1e5  # noise multipliers that a target epsilon can ask for


def epsilon_spent(history: History, delta: float, accountant: str) -> float:
    """Epsilon at `delta` of all steps in `history`; infinite where a step had no noise.

    Args:
        history: the steps so far.
        delta: in (0, 1).
        accountant: `rdp`; `prv`, which gives the RDP bound, valid as well, where that is above 100;
            or `gdp`, the central limit approximation, which can be too small.

    Returns:
        Epsilon, >= 0.
    """
    steps = [entry for entry in history if entry[2] > 0 and entry[1] > 0]
    if not steps:
        return 0.0
    if any(noise <= 0 for noise, _, _ in steps):
        return math.inf
    if accountant == "gdp":
        return _gdp(steps, delta)
    bound = _rdp(steps, delta)
    if accountant == "rdp" or bound > PRV_LIMIT:
        return bound
    from opacus.accountants import PRVAccountant

    prv = PRVAccountant()
    prv.history = steps
    return min(bound, float(prv.get_epsilon(delta)))


def noise_for(epsilon: float, delta: float, rate: float, steps: int, accountant: str) -> float:
    """Noise multiplier at which `steps` steps at sample rate `rate` spend at most `epsilon`.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
        rate: probability with which a step's batch holds an image, in (0, 1].
        steps: of the whole training.
        accountant: as of `epsilon_spent`.

    Returns:
        The multiplier, at most 1 % more than needed.

    Raises:
        InputError: no multiplier from 0.01 to 100,000 spends that much or that little.
    """

    def spent(noise: float) -> float:
        return epsilon_spent([(noise, rate, steps)], delta, accountant)

    if spent(SMALLEST) > epsilon:
        check_reachable(epsilon, delta, rate, steps, accountant)
    return least_noise(spent, epsilon, SMALLEST, LARGEST, 1e-3)


def least_noise(
    spent: Callable[[float], float], epsilon: float, smallest: float, largest: float, share: float
) -> float:
    """Noise from which on a statement keeps an epsilon.

    Args:
        spent: epsilon at a noise; it falls as noise grows.
        epsilon: to be kept.
        smallest: least noise, > 0.
        largest: most noise, which keeps `epsilon`.
        share: tolerance of the search, as part of the noise.

    Returns:
        The noise, a few times `share` of it more than needed at most.
    """

    def excess(log_noise: float) -> float:
        return math.log(min(max(spent(math.exp(log_noise)), 1e-12), 1e12) / epsilon)

    low, high = math.log(smallest), math.log(largest)
    if excess(low) <= 0:
        return smallest
    noise = float(scipy.optimize.brentq(excess, low, high, xtol=share))
    while excess(noise) > 0:
        noise += share
    return math.exp(noise)


def check_reachable(epsilon: float, delta: float, rate: float, steps: int, accountant: str) -> None:
    """Refuse an epsilon that no noise multiplier up to 100,000 keeps.

    Args:
        epsilon, delta, rate, steps, accountant: as of `noise_for`.

    Raises:
        InputError: naming the least epsilon that one keeps.
    """
    least = epsilon_spent([(LARGEST, rate, steps)], delta, accountant)
    if least >= epsilon:
        raise InputError(
            f"epsilon {epsilon:g} is too small for {steps} steps at sample rate {rate:.3g}: no "
            f"noise multiplier up to {LARGEST:,.0f} goes under {least:.2g}"
        )


def _rdp(steps: History, delta: float) -> float:
    """Renyi DP adds over steps; to epsilon by Balle et al. (2020), Theorem 21.

    The same bound as Opacus's accountant, without its warnings about the orders.
    """
    spent = sum(count * _rdp_of_step(noise, rate) for noise, rate, count in steps)
    return renyi_epsilon(np.array(ORDERS, dtype=float), np.asarray(spent), delta)


@cache
def _rdp_of_step(noise: float, rate: float) -> NDArray[np.float64]:
    """At each of ORDERS; the same in every round of a run."""
    from opacus.accountants.analysis.rdp import compute_rdp

    return np.asarray(compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=ORDERS))


def renyi_epsilon(orders: NDArray[np.float64], spent: NDArray[np.float64], delta: float) -> float:
    """Epsilon at `delta` of Renyi divergences `spent` at `orders` > 1: the least over the orders
    (Balle et al., 2020, Theorem 21)."""
    bounds = spent + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(np.nanmin(bounds)))


def _gdp(steps: History, delta: float) -> float:
    """Bu et al. (2019): mu^2 adds over steps."""
    from opacus.accountants.analysis.gdp import compute_mu_poisson

    total = 0.0
    for noise, rate, count in steps:
        if noise < 0.05:  # exp(1/noise^2) would overflow
            return math.inf
        mu = compute_mu_poisson(steps=count, noise_multiplier=noise, sample_rate=rate)
        total += float(mu) ** 2
    return epsilon_at(math.sqrt(total), delta)
