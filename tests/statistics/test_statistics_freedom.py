"""The degrees of freedom of an AUC's variance, written out after Welch and Satterthwaite."""

from __future__ import annotations

import numpy as np
import pytest

from fedmia.statistics.auc import auc_estimate


def test_auc_estimate__freedom_is_welchs_by_hand() -> None:
    """Of members {1, 3} and non-members {0, 2, 4} the AUC is 1/2: a member is over 1 or 2 of 3
    non-members, and 2, 1 or 0 of 2 members are over a non-member."""
    found = auc_estimate(np.array([1.0, 3.0]), np.array([0.0, 2.0, 4.0]))
    of_members = ((1 / 3 - 1 / 2) ** 2 + (2 / 3 - 1 / 2) ** 2) / 1 / 2  # 1/36
    of_nonmembers = ((1 - 1 / 2) ** 2 + 0 + (0 - 1 / 2) ** 2) / 2 / 3  # 1/12
    assert found.variance == pytest.approx(of_members + of_nonmembers) == pytest.approx(1 / 9)
    # (1/9)^2 / ((1/36)^2 / 1 + (1/12)^2 / 2) = 16 / (1 + 9/2)
    assert found.freedom == pytest.approx(32 / 11)


def test_auc_estimate__freedom_of_two_alike_sides_is_that_of_both() -> None:
    draw = np.random.default_rng(0).normal(size=40)
    found = auc_estimate(draw, -draw)  # equal variances: 2 (n - 1)
    assert found.freedom == pytest.approx(2 * 39)
