"""P-values of many tests: textbook answers."""

from __future__ import annotations

import pytest

from fedmia.statistics.pvalues import count_alarms, exceeds_false_alarms, holm


def test_holm__by_hand() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == []


def test_alarms__and_so_many_that_the_control_fails() -> None:
    assert count_alarms([0.05, 0.0501, 0.01], 0.05) == 2
    # Of 20 true nulls, 5 alarms have the chance .0026, 6 of .0003.
    assert not exceeds_false_alarms([0.05] * 5 + [0.5] * 15) and exceeds_false_alarms(
        [0.05] * 6 + [0.5] * 14
    )
    assert not exceeds_false_alarms([])


def test_holm__of_a_textbook() -> None:
    assert holm([0.01, None, 0.04, 0.03, 0.005]) == pytest.approx([0.03, None, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
