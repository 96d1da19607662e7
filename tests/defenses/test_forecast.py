"""The line before a run whose DP-SGD can guarantee nothing."""

from __future__ import annotations

import re
import shlex

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import TRADEOFF
from fedmia.defenses._accounting import epsilon_spent
from fedmia.defenses._persample import sample_rate
from fedmia.defenses.dpsgd import DPSGD
from fedmia.ssl.train import Train
from fedmia.study.simulations import say_forecasts


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


def test_study__says_it_once_for_all_runs_of_a_defence(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(flags: str) -> list[str]:
        line = "smoke --ssl moco --defenses dpsgd,gaussian --seeds 2 --out X " + flags
        invocation = parse(TRADEOFF, shlex.split(line))
        say_forecasts(invocation, invocation.settings.sweep)
        return capsys.readouterr().err.splitlines()

    (line,) = printed("--strengths dpsgd=0.3,0.6,30")
    assert line.startswith("fedmia: dpsgd: these settings end in epsilon")
    assert line.endswith("; of its other settings in this study, 1 end likewise")
    (alone,) = printed("--strengths dpsgd=0.3")
    assert "other settings" not in alone
    assert printed("--strengths dpsgd=30") == []
    assert printed("--strengths dpsgd=0.3 --quiet") == []
