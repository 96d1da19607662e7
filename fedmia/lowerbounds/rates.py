"""A lower bound of epsilon out of an attack's two error rates.

(epsilon, delta)-DP gives TPR <= e^epsilon FPR + delta for whatever tells members from non-members
(Kairouz, Oh, Viswanath, 2015, Thm. 2.1), and the same with the sides changed: TNR of a test that
calls few members non-members. So epsilon >= log((TPR_low - delta) / FPR_high), with Clopper and
Pearson's (1934) limits (Jagielski, Ullman, Oprea, 2020, section 3).
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from fedmia.records import FloatArray

RATES = (0.01, 0.05, 0.1, 0.25)  # false-alarm rates tried, both sides: fixed before any score
TRIED = 2 * len(RATES)  # bounds of one attack


def rates_bound(
    members: FloatArray, nonmembers: FloatArray, delta: float, error: float
) -> tuple[float, float, str]:
    """The largest bound over RATES and both sides; together they hold with 1 - `error`.

    Higher scores say member. Images must be independent draws, which those of one training run
    are not quite: the caller says so.

    Args:
        members, nonmembers: (n,), (m,), neither empty.
        delta: at which epsilon is bounded, in [0, 1].
        error: in (0, 1), shared equally by the TRIED bounds.

    Returns:
        the bound of epsilon, >= 0, 0 where nothing is refuted; the true rate of false alarms, one
        of RATES, that gives it; what the test calls an image there, `member` or `non-member`.
    """
    each = error / TRIED
    bounds = [
        (_bound(hit, other, delta, rate, each), rate, says)
        for says, hit, other in (
            ("member", members, nonmembers), ("non-member", -nonmembers, -members),
        )
        for rate in RATES
    ]  # fmt: skip
    return max(bounds, key=lambda bound: bound[0])


def _bound(hit: FloatArray, other: FloatArray, delta: float, rate: float, error: float) -> float:
    """log((TPR_low - delta) / rate) at a threshold that at most `rate` of all `other` reach.

    At the threshold whose true rate is `rate`, at least k of the m others lie but for error/2,
    k the binomial quantile. A threshold that fewer than k of them reach is thus higher, and its
    rate no greater. It depends on `other` alone, so the lower limit of the TPR, at the other
    half of the error, is Clopper and Pearson's.
    """
    n, m = len(hit), len(other)
    fewest = int(scipy.stats.binom.ppf(error / 2, m, rate))
    if fewest == 0:
        return 0.0  # so few others resolve no threshold of that rate
    # Over the k-th highest: with ties fewer than k others lie over it, never k.
    over = int((hit > np.sort(other)[m - fewest]).sum())
    low = 0.0 if over == 0 else float(scipy.stats.beta.ppf(error / 2, over, n - over + 1))
    return max(0.0, math.log((low - delta) / rate)) if low > delta else 0.0
