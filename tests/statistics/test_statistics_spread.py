"""Numbers over models, and p-values of many tests: textbook answers."""

from __future__ import annotations

import pytest

from fedmia.statistics.pvalues import count_alarms, exceeds_false_alarms, holm
from fedmia.statistics.spread import p_value, spread, t_interval


def test_t_interval__of_a_textbook() -> None:
    """Student's quantile of 4 degrees of freedom is 2.776; 1 to 5 have the error sqrt(1/2)."""
    low, high = t_interval([1.0, 2.0, 3.0, 4.0, 5.0])  # type: ignore[misc]
    assert (low, high) == pytest.approx((3 - 1.963, 3 + 1.963), abs=5e-4)
    assert t_interval([0.7]) is None and t_interval([]) is None
    assert spread([0.7, 0.7 + 1e-9])["ci"] is p_value([1e-9, 2e-9]) is None
    assert t_interval([1.0, 1.0, 1.0]) is None  # else a point, which no three models establish


def test_spread__counts_what_is_known_and_stays_in_range() -> None:
    result = spread([0.9, None, 1.0])
    numbers = [result[name] for name in ("n", "mean", "least", "greatest")]
    assert numbers == [2, 0.95, 0.9, 1.0]
    assert result["ci"][1] == 1.0 and 0 < result["ci"][0] < 0.9
    nothing = dict.fromkeys(("mean", "ci", "sd", "least", "greatest"))
    assert spread([None]) == {"n": 0, **nothing}
    assert spread([0.5])["ci"] is None and spread([0.5])["sd"] is None


def test_p_value__of_a_textbook() -> None:
    """Mean 3, error sqrt(1/2): t = 4.243 with 4 degrees of freedom."""
    assert p_value([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(0.01324, abs=5e-5)
    assert p_value([0.1]) is None


def test_holm__of_a_textbook() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([0.01, None, 0.04, 0.03, 0.005]) == pytest.approx([0.03, None, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == []


def test_alarms__and_so_many_that_the_control_fails() -> None:
    assert count_alarms([0.05, 0.0501, 0.01], 0.05) == 2
    # Of 20 true nulls, 5 alarms have the chance .0026, 6 of .0003.
    five, six = ([0.05] * k + [0.5] * (20 - k) for k in (5, 6))
    assert not exceeds_false_alarms(five) and exceeds_false_alarms(six)
    assert not exceeds_false_alarms([])
