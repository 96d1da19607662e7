"""Epsilon of DP-SGD steps against Opacus's own accountants."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier

from fedmia.defenses.accounting import ORDERS, epsilon_spent, noise_for
from fedmia.lowerbounds.gdp import epsilon_at
from fedmia.settings.errors import InputError


@pytest.mark.slow
def test_noise_for__agrees_with_opacus() -> None:
    for epsilon in (0.5, 8.0):
        theirs = get_noise_multiplier(
            target_epsilon=epsilon, target_delta=1e-5, sample_rate=0.1, steps=100,
            epsilon_tolerance=1e-3,
        )  # fmt: skip
        ours = noise_for(epsilon, 1e-5, 0.1, 100, "rdp")
        assert ours == pytest.approx(theirs, rel=0.02)
        assert epsilon_spent([(ours, 0.1, 100)], 1e-5, "rdp") <= epsilon


def test_epsilon_spent__prv_is_tighter_than_rdp_and_falls_back_on_it() -> None:
    history = [(3.0, 0.1, 50)]
    rdp, prv = (epsilon_spent(history, 1e-5, a) for a in ("rdp", "prv"))
    assert 0 < prv < rdp
    large = [(0.2, 0.5, 100)]
    assert epsilon_spent(large, 1e-5, "prv") == epsilon_spent(large, 1e-5, "rdp") > 100


def test_epsilon_spent__limits() -> None:
    assert epsilon_spent([], 1e-5, "rdp") == 0.0
    assert epsilon_spent([(0.0, 0.5, 1)], 1e-5, "rdp") == math.inf
    with pytest.raises(InputError, match="too small"):
        noise_for(1e-5, 1e-5, 1.0, 1000, "rdp")


@pytest.mark.parametrize("history", [[(2.0, 0.1, 50)], [(1.5, 0.3, 20), (0.4, 1.0, 3)]])
def test_epsilon_spent__rdp_is_opacus_own_bound(history: Any) -> None:
    theirs = RDPAccountant()
    theirs.history = history
    ours = epsilon_spent(history, 1e-5, "rdp")
    assert ours == pytest.approx(theirs.get_epsilon(1e-5, alphas=ORDERS), rel=1e-9)
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=0.03)


def test_epsilon_spent__gdp_adds_the_squares_of_mu() -> None:
    """mu = rate sqrt(steps (e^(1 / noise^2) - 1)) of each stretch (Bu et al., 2019, Cor. 4)."""
    one, two = (2.0, 0.1, 50), (0.8, 0.3, 20)
    squares = [rate**2 * steps * math.expm1(noise**-2) for noise, rate, steps in (one, two)]
    for history, mu in (([one], squares[0] ** 0.5), ([one, two], sum(squares) ** 0.5)):
        assert epsilon_spent(history, 1e-5, "gdp") == pytest.approx(epsilon_at(mu, 1e-5))
