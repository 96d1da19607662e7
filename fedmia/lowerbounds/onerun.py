"""Privacy auditing with one training run: Steinke, Nasr and Jagielski (2023), arXiv 2305.08846.

m canaries are each in the data set with probability 1/2, independently. The auditor sees what the
mechanism released and says of at most r of them whether they were in; v of these guesses are
right. Theorem 5.2: if the mechanism is (epsilon, delta)-DP for each canary, then for every v

    P[right >= v] <= beta(v) + 2 m delta max_{1 <= i <= v} (1/i) P[v > B >= v - i],

where B ~ Binomial(r, e^epsilon / (1 + e^epsilon)) and beta(v) = P[B >= v]. The right side is the
p-value of the claim, and the largest epsilon that it rejects a lower bound at that confidence. The
guesses may depend on all that was released, but r may not: several numbers tried divide the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy
from scipy.special import expit

STEPS = 30  # halvings of an interval of length 1: a bound is exact to 1e-9


def p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """The p-value of the claim of (epsilon, delta)-DP, where v of r guesses are right.

    Theorem 5.2 and Corollary 5.4. Where it is small it rises with epsilon, so bisection finds the
    largest epsilon that it rejects.

    Args:
        m: number of canaries, each in with probability 1/2.
        r: number of guesses, at most m.
        v: number of guesses that were right, at most r.
        epsilon: of the claim, >= 0.
        delta: of the claim, in [0, 1].

    Returns:
        p-value, in [0, 1].

    Raises:
        ValueError: not 0 <= v <= r <= m, epsilon < 0 or delta outside [0, 1].
    """
    if not 0 <= v <= r <= m or epsilon < 0 or not 0 <= delta <= 1:
        raise ValueError(
            f"no p-value of {v} of {r} guesses about {m} canaries at ({epsilon}, {delta})"
        )
    p_right = expit(epsilon)  # e^epsilon / (1 + e^epsilon)
    beta = float(scipy.stats.binom.sf(v - 1, r, p_right))
    # P[v > B >= v - i] for i = 1 .. v, by sums from v - 1 downwards.
    just_under = np.cumsum(scipy.stats.binom.pmf(np.arange(v - 1, -1, -1), r, p_right))
    steepest = float(np.max(just_under / np.arange(1, v + 1), initial=0.0))
    return min(beta + 2 * m * delta * steepest, 1.0)


def one_run_bound(
    m: int, guesses: Sequence[int], correct: Sequence[int], delta: float, error: float
) -> float:
    """The epsilon that a mechanism exceeds with confidence 1 - `error`; 0 where nothing is refuted.

    Args:
        m: number of canaries, each in with probability 1/2.
        guesses: numbers of guesses, fixed in advance.
        correct: how many of each number were right.
        delta: at which epsilon is bounded, in [0, 1].
        error: probability of a wrong bound, in (0, 1).

    Returns:
        lower bound of epsilon, >= 0.

    Raises:
        ValueError: as `p_value`, or no number of guesses.
    """

    def refutes(r: int, v: int, epsilon: float, share: float) -> bool:
        return p_value(m, r, v, epsilon, delta) < share

    return largest_refuted(guesses, correct, error, refutes)


def largest_refuted(
    guesses: Sequence[int], correct: Sequence[int], error: float,
    refutes: Callable[[int, int, float, float], bool],
) -> float:  # fmt: skip
    """The largest value that any number of guesses refutes, from below; 0 where none does.

    Args:
        guesses: numbers of guesses, fixed in advance.
        correct: how many of each number were right.
        error: probability of a wrong bound, in (0, 1). Each number of guesses tried gets an equal
            share of it (Bonferroni).
        refutes: whether an outcome refutes a value: of (number of guesses, number of right ones,
            value, share of `error`). Where it refutes a value, it must refute all smaller ones.

    Returns:
        the largest refuted value, >= 0.

    Raises:
        ValueError: no number of guesses, `error` outside (0, 1), or as `refutes`.
    """
    if not guesses:
        raise ValueError("no number of guesses was fixed")
    if not 0 < error < 1:
        raise ValueError(f"error: {error}, must be in (0, 1)")
    each, best = error / len(guesses), 0.0
    for r, v in zip(guesses, correct, strict=True):
        if not refutes(r, v, 0.0, each):
            continue
        low, high = 0.0, 1.0
        while refutes(r, v, high, each):
            low, high = high, high + 1.0
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if refutes(r, v, middle, each) else (low, middle)
        best = max(best, low)
    return best
