"""Noise on a head: law, scale, identity, what canaries find, and what a head answers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedmia.defenses.heads.release import (
    CLASSICAL,
    ReleaseSetting,
    add_noise,
    assumptions,
    audit_noise,
    mechanism,
    noise_scale,
    predict_probabilities,
)
from fedmia.defenses.heads.stack import HeadStack, init_heads
from fedmia.lowerbounds.gdp import delta_at, epsilon_at
from fedmia.seeding import rng

MECHANISMS = ("logistic", "laplace", "gaussian")

LAWS: dict[str, Any] = {
    "logistic": stats.logistic, "laplace": stats.laplace, "gaussian": stats.norm
}  # fmt: skip
DELTAS = {1: 3.0, 2: 0.4}


def heads(count: int = 1) -> HeadStack:
    return init_heads(count, [40, 20, 10], torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MECHANISMS)
def test_released__noise_has_the_stated_law_on_every_weight(name: str) -> None:
    """At zero strength heads are themselves."""
    law, one = law_of(name), heads().take([0] * 5)
    noise = (add_noise(one, law, 0.7, rng(1, "noise")).flat() - one.flat()).numpy()
    assert noise.shape == (5, 41 * 20 + 21 * 10)
    assert stats.kstest(noise.ravel(), LAWS[name](scale=0.7).cdf).pvalue > 0.01
    assert stats.kstest(noise.ravel(), LAWS[name](scale=0.77).cdf).pvalue < 0.01
    assert np.abs(np.corrcoef(noise)[0, 1:]).max() < 0.12  # releases are independent
    bare = add_noise(one, law, 0.0, rng(1, "noise")), one.plus(torch.zeros_like(one.flat()))
    for same in bare:
        assert all(map(torch.equal, one.tensors(), same.tensors()))


def law_of(name: str, epsilon: float = 1.0, delta: float = 1e-5) -> Any:
    return mechanism(ReleaseSetting(name, epsilon), delta)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0])
def test_scale__is_the_papers_and_the_gaussians_is_exact(epsilon: float) -> None:
    """Classical: sigma = Delta_2 sqrt(2 ln(1.25 / delta)) / epsilon (Sec. 3.2)."""
    scales = {n: noise_scale(law_of(n, epsilon), epsilon, DELTAS) for n in (*LAWS, CLASSICAL)}
    assert scales["logistic"] == pytest.approx(3.0 / epsilon) == scales["laplace"]
    assert delta_at(epsilon, 0.4 / scales["gaussian"]) == pytest.approx(1e-5, rel=1e-6)
    twin = 0.4 * math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    assert scales[CLASSICAL] == pytest.approx(twin)
    assert (scales["gaussian"] < twin) == (epsilon <= 1)  # above it the classical is too small


@pytest.mark.parametrize("name", [*MECHANISMS, CLASSICAL])
def test_audit__guesses_more_right_of_a_quarter_of_the_noise(name: str) -> None:
    setting = ReleaseSetting(name, 2.0)
    scale = noise_scale(law_of(name, 2.0), 2.0, DELTAS)
    honest, weak = (
        audit_noise(setting, 1e-5, DELTAS, scale / part, 1000, rng(0, "audit")) for part in (1, 4)
    )
    assert honest.value == weak.value == 2.0 and honest.standing == "empirical"
    assert honest.delta == weak.delta == (1e-5 if "gaussian" in name else 0.0)
    first, second = honest.lower_bound, weak.lower_bound
    assert first is not None and second is not None and first.canaries == 1000
    assert sum(first.correct) < sum(second.correct) and [*first.guesses] == [*second.guesses]


def test_assumptions__say_where_the_classical_calibration_is_proved() -> None:
    settings = [ReleaseSetting(m, e) for m in ("laplace", CLASSICAL) for e in (0.5, 10.0)]
    text = assumptions(settings, 1e-5, 7)
    assert "7 pairs" in text and "no random differential privacy" in text
    assert "epsilon below 1" in text and "It covers 0.5." in text
    assert f"{epsilon_at(10 / math.sqrt(2 * math.log(1.25e5)), 1e-5):.3g} at 10" in text
    assert "It covers none of these" in assumptions(settings[1::2], 1e-5, 7)
    assert "Theorem A.1" not in assumptions(settings[:2], 1e-5, 7)


def test_answers__are_probabilities_of_one_draw() -> None:
    one, asked = heads(2), torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    found = predict_probabilities(one, asked)
    assert found.shape == (2, 6, 10) and torch.allclose(found.sum(dim=2), torch.ones(2, 6))
    again = predict_probabilities(one, asked[2:3])
    assert torch.allclose(found[:, 2:3], again, atol=1e-6)
