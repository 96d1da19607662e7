"""The line before a run whose DP-SGD can guarantee nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedmia.defenses._persample import sample_rate
from fedmia.defenses.accounting import epsilon_spent
from fedmia.defenses.dpsgd import DPSGD
from fedmia.ssl.train import Train
from tests.commands import fedmia
from tests.fake_runs import runs_of


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


def printed(flags: str, folder: Path) -> str:
    """What a study says of its defences before its runs."""
    with runs_of(folder / "tell"):
        ran = fedmia(f"study smoke --ssl moco --seeds 1 --jobs 1 {flags}", folder / str(len(flags)))
    lines = [line for line in ran.err.splitlines() if line.startswith("fedmia: dpsgd: ")]
    assert ran.code == 0, ran.err
    return "\n".join(lines)


@pytest.mark.slow
def test_study__says_it_once_for_all_runs_of_a_defence(tmp_path: Path) -> None:
    flags = "--defenses dpsgd,gaussian --strengths dpsgd="
    (line,) = printed(f"{flags}0.3,0.6,30", tmp_path).splitlines()
    assert line.startswith("fedmia: dpsgd: these settings end in epsilon")
    assert line.endswith("; of its other settings in this study, 1 end likewise")
    assert "other settings" not in printed(f"{flags}0.3", tmp_path)
    assert printed(f"{flags}30", tmp_path) == ""


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
    tmp_path: Path, flags: str, option: str
) -> None:
    """The flag that the line names is one that the same command accepts, and silences it."""
    line = printed(flags, tmp_path)
    assert "; defense.dpsgd.epsilon 8 sets the noise for it" in line
    silenced = f"{flags.replace('--strengths dpsgd=0.3', '')} {option}"
    assert printed(silenced, tmp_path) == ""


@pytest.mark.slow
def test_run__prints_the_option_and_not_its_mark() -> None:
    """The line before a run's first round is for a reader: no mark of an option is left."""
    flags = "--ssl moco --defense dpsgd,gaussian --attacker passive"
    ran = fedmia(f"simulate --config smoke {flags} --strategy tests.watched:Refuses")
    (line,) = [one for one in ran.err.splitlines() if "dpsgd:" in one]
    assert line.endswith("; defense.dpsgd.epsilon 8 sets the noise for it")
