"""The line before a run whose DP-SGD can guarantee nothing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from threading import Event

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE, STUDY
from fedmia.defenses._persample import sample_rate
from fedmia.defenses.accounting import epsilon_spent
from fedmia.defenses.dpsgd import DPSGD
from fedmia.federation import train as training
from fedmia.federation.plan import make_plan
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.ssl.train import Train
from fedmia.study.command import say_forecasts


@pytest.mark.slow
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


def printed(flags: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a study says before its runs."""
    invocation = parse(STUDY, shlex.split(f"smoke --ssl moco --seeds 1 --out X {flags}"))
    say_forecasts(invocation.settings)
    return capsys.readouterr().err


@pytest.mark.slow
def test_study__says_it_once_for_all_runs_of_a_defence(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--defenses dpsgd,gaussian --strengths dpsgd="
    (line,) = printed(f"{flags}0.3,0.6,30", capsys).splitlines()
    assert line.startswith("fedmia: dpsgd: these settings end in epsilon")
    assert line.endswith("; of its other settings in this study, 1 end likewise")
    assert "other settings" not in printed(f"{flags}0.3", capsys)
    assert printed(f"{flags}30", capsys) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "option"),
    [
        ("--defenses dpsgd --strengths dpsgd=0.3", "--strengths dpsgd.epsilon=8"),
        ("--over defense=dpsgd", "--over defense.dpsgd.epsilon=8"),
        ("--defense dpsgd,gaussian --over rounds=2,3", "--defense.dpsgd.epsilon 8"),
    ],
)
def test_study__spells_the_option_as_the_command_takes_it(
    capsys: pytest.CaptureFixture[str], flags: str, option: str
) -> None:
    """The flag that the line names is one that the same command accepts, and silences it."""
    line = printed(flags, capsys)
    assert "; defense.dpsgd.epsilon 8 sets the noise for it" in line
    silenced = f"{flags.replace('--strengths dpsgd=0.3', '')} {option}"
    assert printed(silenced, capsys) == ""


@pytest.mark.slow
def test_run__prints_the_option_and_not_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line before a run's first round is for a reader: no mark of an option is left."""
    line = "smoke --ssl moco --defense dpsgd,gaussian --attacker passive"
    plan = make_plan(parse(SIMULATE, shlex.split(f"--config {line} --out X")).settings)
    printed = list[str]()

    class Bars:
        """Collects the lines of the terminal."""

        line = printed.append

    def stop_here(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(training, "make_client_setup", stop_here)
    with pytest.raises(InterruptedError):
        training.train(plan, Path(), None, Event(), Stopwatch(0.0), Bars())  # type: ignore[arg-type]
    (line,) = [one for one in printed if "dpsgd" in one]
    assert line.endswith("; defense.dpsgd.epsilon 8 sets the noise for it")
