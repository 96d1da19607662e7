"""Epsilon and delta of Gaussian releases, exact.

A release of sensitivity Delta (L2) under noise of standard deviation sigma is mu-GDP with
mu = Delta / sigma, and T of them are mu sqrt(T)-GDP (Dong, Roth, Su, 2019, Cor. 1 and 3.3). Its
delta at epsilon is Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Balle and Wang, 2018, Thm. 8),
which holds for every epsilon, unlike sigma = Delta sqrt(2 ln(1.25/delta)) / eps.
"""

from __future__ import annotations

import math

import scipy
from scipy.special import erfcx, ndtr, ndtri


def delta_at(epsilon: float, mu: float) -> float:
    """Smallest delta at which mu-GDP implies (epsilon, delta)-DP; epsilon >= 0, mu > 0.

    Args:
        epsilon: >= 0.
        mu: parameter of Gaussian differential privacy, > 0.

    Returns:
        delta, in [0, 1]; Theorem 8 of Balle and Wang (2018).
    """
    return _delta(mu / 2 - epsilon / mu, mu)


def epsilon_at(mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 at which mu-GDP implies (epsilon, delta)-DP; 0 < delta < 1.

    Args:
        mu: parameter of Gaussian differential privacy, > 0.
        delta: in (0, 1).

    Returns:
        epsilon, >= 0.
    """
    if mu <= 0 or _delta(mu / 2, mu) <= delta:
        return 0.0
    # delta(a) <= Phi(a), so the root lies above Phi^-1(delta).
    root = scipy.optimize.brentq(
        lambda a: _delta(a, mu) - delta, float(ndtri(delta)), mu / 2, xtol=1e-12
    )
    return float(mu * (mu / 2 - root))


def mu_at(epsilon: float, delta: float) -> float:
    """Largest mu whose mu-GDP implies (epsilon, delta)-DP; epsilon > 0, 0 < delta < 1.

    Args:
        epsilon: > 0.
        delta: in (0, 1).

    Returns:
        mu, > 0.
    """
    high = 2 * math.sqrt(2 * epsilon) + 20
    return float(
        scipy.optimize.brentq(
            lambda m: delta_at(epsilon, m) - delta, 1e-12, high, xtol=1e-15, rtol=1e-12
        )
    )


def _delta(a: float, mu: float) -> float:
    """`delta_at` with a = mu/2 - eps/mu; the two terms share e^(-a^2/2), so nothing overflows."""
    common = 0.5 * math.exp(-a * a / 2)
    second = common * float(erfcx((mu - a) / math.sqrt(2)))
    if a >= 0:
        return float(ndtr(a)) - second
    return common * float(erfcx(-a / math.sqrt(2))) - second
