"""Exact Gaussian differential privacy against the textbook formula, RDP and the classical rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from fedmia.lowerbounds.gdp import delta_at, epsilon_at, mu_at


@pytest.mark.parametrize("epsilon, mu", [(0.0, 1.0), (0.5, 1.0), (3.0, 0.7), (1.0, 4.0)])
def test_delta_at__is_the_hockey_stick_of_two_normals(epsilon: float, mu: float) -> None:
    def excess(x: float) -> float:
        return float(max(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), 0.0))

    edge = epsilon / mu + mu / 2  # where the likelihood ratio is e^epsilon
    area, _ = quad(excess, edge, mu + 12, epsabs=1e-14, epsrel=1e-10)
    assert delta_at(epsilon, mu) == pytest.approx(area, rel=1e-7)


@given(st.floats(1e-3, 1e6), st.floats(1e-12, 0.5))
def test_mu_at__inverts_epsilon_at(epsilon: float, delta: float) -> None:
    mu = mu_at(epsilon, delta)
    assert epsilon_at(mu, delta) == pytest.approx(epsilon, rel=1e-5)
    assert delta_at(epsilon, mu) == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0, 30.0, 1e4])
def test_epsilon_at__below_the_rdp_bound_and_not_far(mu: float) -> None:
    orders = 1 + np.logspace(-5, 5, 4000)
    rdp = orders * mu**2 / 2 + np.log1p(-1 / orders)
    bound = (rdp - (math.log(1e-5) + np.log(orders)) / (orders - 1)).min()
    exact = epsilon_at(mu, 1e-5)
    assert 0.5 * bound - 0.01 <= exact <= bound + 1e-9


def test_epsilon_at__nothing_released_costs_nothing() -> None:
    assert epsilon_at(0.0, 1e-5) == 0.0
    assert epsilon_at(1e-6, 1e-5) == 0.0
    assert epsilon_at(1.0, 1e-5) < epsilon_at(1.1, 1e-5) < epsilon_at(1.1, 1e-6)
