"""The one-run bound: the paper's own numbers, a naive twin, and mechanisms that spend it all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedmia.lowerbounds.onerun import one_run_bound, p_value
from fedmia.seeding import rng


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "printed"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_bound__is_what_the_paper_prints(
    m: int, r: int, v: int, delta: float, printed: float
) -> None:
    """Appendix D, and section 7 with Fig. 11; dropping the term of delta would miss the first."""
    assert one_run_bound(m, [r], [v], delta, 0.05) == pytest.approx(printed, abs=1e-3)
    assert abs(one_run_bound(1000, [100], [75], 0.0, 0.05) - 0.673) > 2e-3


def test_bound__of_guesses_that_are_all_right_has_a_closed_form() -> None:
    bound = one_run_bound(16, [16], [16], 0.0, 0.05)
    assert bound == pytest.approx(-math.log(0.05 ** (-1 / 16) - 1), abs=1e-9)


def naive(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2 written out, one sum after another."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    steepest = max((sum(mass[v - i : v]) / i for i in range(1, v + 1)), default=0.0)
    return min(1.0, sum(mass[v:]) + 2 * m * delta * steepest)


def test_p_value__equals_the_naive_twin() -> None:
    for r, v in [(0, 0), (1, 1), (9, 0), (9, 5), (30, 30), (40, 27)]:
        for epsilon in (0.0, 0.7, 3.0):
            for delta in (0.0, 1e-4, 0.02):
                want = naive(50, r, v, epsilon, delta)
                assert p_value(50, r, v, epsilon, delta) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (2.0, 0.0), (1.0, 1e-4)])
def test_bound__exceeds_a_true_epsilon_in_one_of_twenty_audits_at_most(
    epsilon: float, delta: float
) -> None:
    """Each coin is told with probability delta, else by randomised response: all of it is spent,
    so that without delta the share comes near its limit."""
    stream, m, r, audits = rng(0, "one-run"), 60, 40, 1000
    inside = stream.random((audits, m)) < 0.5
    honest = stream.random((audits, m)) < math.exp(epsilon) / (1 + math.exp(epsilon))
    told = stream.random((audits, m)) < delta
    right = (np.where(honest | told, inside, ~inside) == inside)[:, :r].sum(axis=1)
    bounds = {v: one_run_bound(m, [r], [v], delta, 0.05) for v in map(int, np.unique(right))}
    share = np.mean([bounds[int(v)] > epsilon for v in right])
    assert share <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / audits)
    assert delta > 0 or share > 0.01


def test_bound__numbers_of_guesses_tried_share_the_error() -> None:
    both = one_run_bound(1000, [100, 500], [90, 260], 1e-5, 0.05)
    assert both == one_run_bound(1000, [100], [90], 1e-5, 0.025)
    assert both < one_run_bound(1000, [100], [90], 1e-5, 0.05)
    assert one_run_bound(1000, [100], [50], 1e-5, 0.05) == 0.0


def test_bound__refuses_what_is_no_audit() -> None:
    for m, r, v in ((10, 11, 1), (10, 5, 6)):
        with pytest.raises(ValueError, match="no p-value"):
            p_value(m, r, v, 1.0, 0.0)
    with pytest.raises(ValueError, match="no number of guesses"):
        one_run_bound(10, [], [], 0.0, 0.05)
    with pytest.raises(ValueError, match=r"error: 1\.5, must be in \(0, 1\)"):
        one_run_bound(10, [5], [5], 0.0, 1.5)
