"""The classical calibration of the Gaussian mechanism: its sigma, and what it guarantees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedmia.defenses.base import PreparationContext
from fedmia.defenses.gaussian import Gaussian, exact_epsilon
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.ssl.base import State

NONE = np.zeros((0, 1, 8, 8), np.uint8)


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
    defense = Gaussian(clip=0.5, calibration="classical", **options)
    memory: dict[str, Any] = {}
    look = PreparationContext(rounds, 4, lambda positions: {}, rng(0, "look"), NONE)
    defense.prepare(look, memory)
    for turn in range(done):
        defense.release(*states, memory, rng(0, turn))
    return defense, memory


@pytest.mark.parametrize("epsilon", [0.3, 0.99, 4.0])
def test_scale__of_one_release_is_the_papers(epsilon: float, states: tuple[State, State]) -> None:
    _, memory = release(states, 1, 1, epsilon=epsilon, delta=1e-6)
    assert memory["scale"] == pytest.approx(naive_sigma(1.0, epsilon, 1e-6))


def test_scale__of_many_rounds_gives_each_its_share_of_epsilon_and_delta(states: Any) -> None:
    defense, memory = release(states, 5, 5, epsilon=2.0, delta=1e-5)
    assert memory["scale"] == pytest.approx(naive_sigma(1.0, 2.0 / 5, 1e-5 / 5))
    stated = defense.privacy(memory)
    assert stated is not None and stated.value == pytest.approx(2.0)
    assert (stated.standing, stated.delta, stated.rounds) == ("guaranteed", 1e-5, 5)
    assert "0.4 a release" in stated.assumptions


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("share", [0.2, 0.99, 1.0, 9.0])
def test_privacy__is_guaranteed_below_an_epsilon_of_one_a_release_only(
    share: float, rounds: int, states: Any
) -> None:
    defense, memory = release(states, rounds, rounds, epsilon=share * rounds)
    stated = defense.privacy(memory)
    assert stated is not None and stated.value == pytest.approx(share * rounds)
    assert stated.standing == ("guaranteed" if share < 1 else "heuristic")
    assert "epsilon below 1 a release" in stated.assumptions
    assert ("guarantees nothing" in stated.assumptions) == (share >= 1)
    mu = math.sqrt(rounds) * 2 * 0.5 / memory["scale"]
    exact = exact_epsilon(stated.value, defense.delta, rounds)
    assert naive_delta(exact, mu) == pytest.approx(defense.delta, rel=1e-3)
    assert f"spends epsilon {exact:.3g} " in stated.assumptions
    if share < 1:  # what is called guaranteed is true
        assert naive_delta(stated.value, mu) <= defense.delta


def test_privacy__heuristic_where_the_formula_is_wrong(states: Any) -> None:
    """At epsilon 10 the noise is too small: the (epsilon, delta) that it names does not hold."""
    defense, memory = release(states, 1, 1, epsilon=10.0)
    assert naive_delta(10.0, 1.0 / memory["scale"]) > defense.delta
    assert exact_epsilon(10.0, defense.delta) > 10.0


def test_privacy__estimated_sensitivity_stays_empirical(states: Any) -> None:
    for epsilon in (0.5, 5.0):
        defense = Gaussian(epsilon=epsilon, sensitivity="sampled", calibration="classical")
        memory: dict[str, Any] = {"planned": 1, "sensitivity": 0.3}
        defense.release(*states, memory, rng(0, "x"))
        stated = defense.privacy(memory)
        assert stated is not None and stated.standing == "empirical"
        assert "not random differential privacy" in stated.assumptions
        assert "Theorem A.1" in stated.assumptions


def test_privacy__the_default_is_the_exact_one(states: Any) -> None:
    defense, memory = Gaussian(epsilon=10.0, clip=0.5), {"planned": 1}
    defense.release(*states, memory, rng(0, "x"))
    stated = defense.privacy(memory)
    assert stated is not None and stated.standing == "guaranteed"
    assert "Theorem A.1" not in stated.assumptions
    assert memory["scale"] != pytest.approx(naive_sigma(1.0, 10.0, 1e-5))


def test_privacy__without_a_release_or_noise(states: Any) -> None:
    defense, memory = release(states, 2, 0, epsilon=1.0)
    stated = defense.privacy(memory)
    assert stated is not None and (stated.value, stated.rounds) == (0.0, 0)
    silent = Gaussian(scale=0.0, calibration="classical")
    assert silent.privacy({"rounds": 1, "scale": 0.0}) is None
    with pytest.raises(InputError, match=r"unknown Gaussian.calibration value"):
        Gaussian(calibration="exact")
