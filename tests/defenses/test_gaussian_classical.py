"""The classical calibration of the Gaussian mechanism: its sigma, and what it guarantees."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedmia.defenses.gaussian import Gaussian, exact_epsilon
from fedmia.seeding import rng
from tests.defenses.test_release_noise import preparation


def naive_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Sec. 3.2 of the additive logistic paper, as it stands there."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def naive_delta(epsilon: float, mu: float) -> float:
    """The hockey stick of N(mu, 1) and N(0, 1) at e^epsilon, by quadrature."""
    edge = epsilon / mu + mu / 2
    area, _ = quad(
        lambda x: norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), edge, edge + mu + 12,
        epsabs=1e-16, epsrel=1e-9,
    )  # fmt: skip
    return float(area)


def release(states: Any, rounds: int, done: int, **options: Any) -> tuple[Gaussian, dict[str, Any]]:
    defense = Gaussian(clip=0.5, **{"calibration": "classical", **options})
    memory: dict[str, Any] = {}
    defense.prepare(preparation(rounds), memory)
    for turn in range(done):
        defense.release(*states, memory, rng(0, turn))
    return defense, memory


@pytest.mark.parametrize(
    ("epsilon", "rounds"),
    [(0.2, 1), (0.99, 1), (1.0, 1), (4.0, 1), (10.0, 1), (0.6, 3), (2.97, 3), (3.0, 3), (27.0, 3)],
)
def test_privacy__is_guaranteed_below_an_epsilon_of_one_a_release_only(
    epsilon: float, rounds: int, states: Any
) -> None:
    """Of T releases each has its share of epsilon and of delta."""
    defense, memory = release(states, rounds, rounds, epsilon=epsilon, delta=1e-6)
    share = epsilon / rounds
    assert memory["scale"] == pytest.approx(naive_sigma(1.0, share, 1e-6 / rounds))
    stated: Any = defense.privacy(memory)
    assert stated.value == pytest.approx(epsilon)
    assert stated.standing == ("guaranteed" if share < 1 else "heuristic")
    assert (stated.delta, stated.rounds) == (1e-6, rounds)
    assert f"{share:.3g} a release" in stated.assumptions
    assert "epsilon below 1 a release" in stated.assumptions
    assert ("guarantees nothing" in stated.assumptions) == (share >= 1)
    mu = math.sqrt(rounds) * 2 * 0.5 / memory["scale"]
    exact = exact_epsilon(stated.value, defense.delta, rounds)
    assert naive_delta(exact, mu) == pytest.approx(defense.delta, rel=1e-3)
    assert f"spends epsilon {exact:.3g} " in stated.assumptions
    if share < 1:  # what is called guaranteed is true
        assert naive_delta(stated.value, mu) <= defense.delta
    if share == 10:  # and what is not, false: the noise is too small
        assert naive_delta(stated.value, mu) > defense.delta and exact > stated.value


def test_privacy__estimated_sensitivity_stays_empirical(states: Any) -> None:
    for epsilon in (0.5, 5.0):
        defense = Gaussian(epsilon=epsilon, sensitivity="sampled", calibration="classical")
        memory: dict[str, Any] = {"planned": 1, "sensitivity": 0.3}
        defense.release(*states, memory, rng(0, "x"))
        stated: Any = defense.privacy(memory)
        assert stated.standing == "empirical"
        assert "not random differential privacy" in stated.assumptions
        assert "Theorem A.1" in stated.assumptions


def test_privacy__the_default_is_the_exact_one(states: Any) -> None:
    defense, memory = release(states, 1, 1, epsilon=10.0, calibration="analytic")
    stated: Any = defense.privacy(memory)
    assert stated.standing == "guaranteed" and "Theorem A.1" not in stated.assumptions
    assert memory["scale"] != pytest.approx(naive_sigma(1.0, 10.0, 1e-5))
    assert Gaussian().calibration == "analytic"


def test_privacy__without_a_release_or_noise(states: Any) -> None:
    defense, memory = release(states, 2, 0, epsilon=1.0)
    stated: Any = defense.privacy(memory)
    assert (stated.value, stated.rounds) == (0.0, 0)
    silent = Gaussian(scale=0.0, calibration="classical")
    assert silent.privacy({"rounds": 1, "scale": 0.0}) is None
