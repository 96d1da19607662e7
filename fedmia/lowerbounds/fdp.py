"""Lower bounds of mu for mechanisms that claim to be mu-GDP; tighter than one of (epsilon, delta).

A mechanism is mu-GDP (Dong, Roth, Su, 2019) if P_in(E) <= F(P_out(E)) for every event E, and with
in and out changed, F(x) = Phi(Phi^-1(x) + mu). These bounds hold for claims whose own law is that
of Gaussian noise, and judge no other: subsampled or Laplace noise has another curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import scipy
from scipy.special import ndtr, ndtri

from fedmia.lowerbounds.onerun import largest_refuted


def shared_run_bound(m: int, guesses: Sequence[int], correct: Sequence[int], error: float) -> float:
    """The mu that a mechanism exceeds with confidence 1 - `error`, of canaries in one run of it.

    Mahloujifar, Melis, Chaudhuri (2024), arXiv 2410.22235: `excludes`, for every number of guesses.

    Args:
        m: number of canaries, each in with probability 1/2.
        guesses: numbers of guesses, fixed in advance.
        correct: how many of each number were right.
        error: probability of a wrong bound, in (0, 1).

    Returns:
        lower bound of mu, >= 0.
    """
    return largest_refuted(guesses, correct, error, partial(excludes, m))


def excludes(m: int, r: int, v: int, mu: float, error: float) -> bool:
    """Whether mu-GDP makes v or more right ones of r guesses about m canaries less likely than
    `error`, however the canaries depend on each other.

    The recursion of Mahloujifar et al. (2024). Let p_i = P[i right]. For a canary j and a number t
    take as E "j is guessed as it is, and t or more are right". With j's coin turned, one less is
    right of that output. Averaged over j and over all coins, as F is concave,

        sum_{i >= t} i p_i / m <= F(sum_{i >= t - 1} (r - i) p_i / m).

    The p that put the most on i >= v put it on v, and on each i under v what the inequality of
    t = i + 1 needs: to move mass from i to i - 1 loosens those of t <= i. If these p add up to more
    than 1, there are none.

    Args:
        m: canaries, each in with probability 1/2, independently.
        r: guesses, fixed in advance.
        v: guesses that were right.
        mu: parameter of Gaussian differential privacy, >= 0.
        error: probability that counts as unlikely, in (0, 1).

    Returns:
        True if the outcome refutes mu-GDP.

    Raises:
        ValueError: not 0 <= v <= r <= m.
    """
    if not 0 <= v <= r <= m:
        raise ValueError(f"no audit of {v} of {r} guesses about {m} canaries")
    right, wrong = error * v / m, error * (r - v) / m
    for i in range(v - 1, -1, -1):
        need = float(ndtr(ndtri(right) - mu)) - wrong
        if need <= 0 or right + wrong > r / m:  # nor is there any further down
            break
        right, wrong = right + need * i / (r - i), wrong + need
    return right + wrong > r / m


def own_runs_bound(m: int, v: int, error: float) -> float:
    """The mu that a mechanism exceeds with confidence 1 - `error`, of canaries with a run each.

    A guess is right with 1 - (false alarms + misses) / 2, under mu-GDP at most Phi(mu / 2), and
    independently of other runs (Dong et al., 2019, section 2.1). So v lies under Binomial(m,
    Phi(mu / 2)), whose parameter is over Clopper and Pearson's (1934) lower limit.

    Args:
        m: canaries, in with probability 1/2, each guessed by a rule fixed in advance.
        v: right.
        error: probability of a wrong bound, in (0, 1).

    Returns:
        lower bound of mu, >= 0.
    """
    return max(0.0, 2 * float(ndtri(scipy.stats.beta.ppf(error, v, m - v + 1)))) if v else 0.0
