"""The line before a run whose DP-SGD can guarantee nothing."""

from __future__ import annotations

import re

from fedmia.defenses._accounting import epsilon_spent
from fedmia.defenses._persample import sample_rate
from fedmia.defenses.dpsgd import DPSGD
from fedmia.ssl.train import Train


def test_forecast__names_a_number_of_images_that_reaches_the_goal() -> None:
    train, defense = Train(batch_size=32, local_epochs=1), DPSGD(noise_multiplier=0.6)
    line = defense.forecast(100, train, 10)
    assert line is not None
    needed = int(re.findall(r"about ([\d,]+) images", line)[0].replace(",", ""))

    def spent(images: int) -> float:
        steps = 10 * -(-images // 32)
        return epsilon_spent([(0.6, sample_rate(images, 32), steps)], 1e-5, "rdp")

    assert spent(needed) <= 8 < spent(round(0.9 * needed))
    assert f"epsilon {spent(100):.3g}" in line
    assert defense.forecast(needed, train, 10) is None


def test_forecast__silent_where_a_budget_is_given() -> None:
    assert DPSGD(epsilon=8.0).forecast(100, Train(), 10) is None
    assert "nothing is guaranteed" in str(DPSGD(noise_multiplier=0.0).forecast(100, Train(), 10))
