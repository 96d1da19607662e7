"""Bounds of mu: against a linear program, and mechanisms that spend all of it or too much."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import binom, norm

from fedmia.lowerbounds.fdp import excludes, own_runs_bound, shared_run_bound
from fedmia.lowerbounds.gdp import epsilon_at, mu_at
from fedmia.lowerbounds.onerun import one_run_bound
from fedmia.seeding import rng

M, GUESSES, ERROR = 1000, (50, 350, 700), 0.05


def worst(m: int, r: int, v: int, mu: float) -> float:
    """The largest P[right >= v] under the theorem's inequalities, as a linear program: F is the
    least of its tangents."""
    at = norm.cdf(np.linspace(-6, 6, 500))
    slopes = norm.pdf(norm.ppf(at) + mu) / norm.pdf(norm.ppf(at))
    ends = norm.cdf(norm.ppf(at) + mu) - slopes * at
    i, rows, limits = np.arange(r + 1), [], []
    for t in range(1, r + 1):
        right, wrong = i * (i >= t) / m, (r - i) * (i >= t - 1) / m
        rows += [right - slope * wrong for slope in slopes]
        limits += ends.tolist()
    optimum = linprog(-(i >= v).astype(float), rows, limits, np.ones((1, r + 1)), [1.0])
    return -float(optimum.fun)


@pytest.mark.parametrize(
    ("m", "r", "v", "mu"), [(8, 8, 6, 0.5), (8, 8, 7, 1.5), (12, 5, 5, 0.8), (20, 6, 4, 0.2)]
)
def test_excluded__is_what_a_linear_program_says(m: int, r: int, v: int, mu: float) -> None:
    most = worst(m, r, v, mu)
    assert 0.01 < most < 0.999
    assert excludes(m, r, v, mu, most + 2e-3) and not excludes(m, r, v, mu, most - 2e-3)


def critical(r: int, mu: float, error: float) -> int:
    """The fewest right of r guesses about M canaries that exclude mu; r + 1: none do."""
    return next((v for v in range(r // 2, r + 1) if excludes(M, r, v, mu, error)), r + 1)


def ranked(stream: np.random.Generator, mu: float, audits: int) -> NDArray[np.int64]:
    """(audits, numbers of guesses) right ones of the surest guesses, one noised value a canary."""
    inside = stream.random((audits, M)) < 0.5
    order = np.argsort(stream.normal(size=(audits, M)) + mu * inside)
    sides = np.take_along_axis(inside, order, axis=1)
    halves = [r // 2 for r in GUESSES]
    right = [sides[:, -k:].sum(axis=1) + (~sides[:, :k]).sum(axis=1) for k in halves]
    return np.stack(right, axis=1)


@pytest.mark.parametrize("mu", [0.27, 0.93])
def test_shared_run__blames_an_honest_mechanism_in_one_of_twenty_audits_at_most(mu: float) -> None:
    right = ranked(rng(0, "fdp"), mu, 1000)
    limits = [critical(r, mu, ERROR / 3) for r in GUESSES]
    assert (right >= limits).any(axis=1).mean() <= ERROR
    assert max(limits) < 700  # so many right ones there can be


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0])
def test_shared_run__holds_for_canaries_that_hide_each_other(mu: float) -> None:
    """All in one weight: the auditor sees how many are in, and guesses the same of each."""
    stream, r = rng(1, "fdp"), 100
    inside = stream.random((4000, r)) < 0.5
    total = inside.sum(axis=1) + stream.normal(size=4000) / mu
    right = (inside == (total > r / 2)[:, None]).sum(axis=1)
    limit = next((v for v in range(r + 1) if excludes(r, r, v, mu, ERROR)), r + 1)
    assert (right >= limit).mean() <= ERROR
    assert limit < r


@pytest.mark.parametrize("mu", [0.27, 0.93, 3.0])
def test_own_runs__spend_their_error_on_an_honest_mechanism(mu: float) -> None:
    """Of 4,000 audits near 5 %: nothing is given away."""
    stream, audits = rng(2, "fdp"), 4000
    right = stream.binomial(M, norm.cdf(mu / 2), audits)  # of values over mu / 2
    bounds = {int(v): own_runs_bound(M, int(v), ERROR) for v in np.unique(right)}
    share = np.mean([bounds[int(v)] > mu for v in right])
    assert 0.02 < share <= ERROR + 2 * (ERROR * (1 - ERROR) / audits) ** 0.5


@pytest.mark.parametrize(("claim", "least"), [(1.0, 0.2), (4.0, 0.6)])
def test_half_the_noise__is_seen_of_gaussian_claims(claim: float, least: float) -> None:
    """In `least` of audits where canaries share a run, always but for chance where each has one; by
    (epsilon, delta) alone in hardly any."""
    mu = mu_at(claim, 1e-5)
    right = ranked(rng(3, "fdp"), 2 * mu, 100)
    limits = [critical(r, mu, ERROR / 3) for r in GUESSES]
    assert (right >= limits).any(axis=1).mean() > least
    by_delta = [one_run_bound(M, GUESSES, row.tolist(), 1e-5, ERROR) for row in right[:10]]
    assert np.mean(np.array(by_delta) > claim) < 0.2
    own = rng(4, "fdp").binomial(M, norm.cdf(mu), 100)
    assert np.mean([own_runs_bound(M, int(v), ERROR) > mu for v in own]) > 0.9


def test_bounds__invert_what_they_test() -> None:
    right = (45, 260, 460)
    mu = shared_run_bound(M, GUESSES, right, ERROR)
    pairs = list(zip(GUESSES, right, strict=True))
    assert any(excludes(M, r, v, 0.999 * mu, ERROR / 3) for r, v in pairs)
    assert not any(excludes(M, r, v, 1.001 * mu, ERROR / 3) for r, v in pairs)
    own = own_runs_bound(M, 600, ERROR)
    assert binom.sf(599, M, norm.cdf(own / 2)) == pytest.approx(ERROR)
    assert 9 < epsilon_at(shared_run_bound(M, GUESSES, GUESSES, ERROR), 1e-5) < 10


def test_bounds__of_chance_and_of_nothing() -> None:
    assert shared_run_bound(M, GUESSES, (25, 175, 350), ERROR) == 0.0
    assert own_runs_bound(M, 500, ERROR) == own_runs_bound(M, 0, ERROR) == 0.0
    with pytest.raises(ValueError, match="no audit of 6 of 5 guesses about 10 canaries"):
        shared_run_bound(10, [5], [6], ERROR)
    with pytest.raises(ValueError, match="no number of guesses"):
        shared_run_bound(10, [], [], ERROR)
