"""The placebo where it is asked for, and controls of attacks that compare rounds: they can fail."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import Tensor

from fedmia.attacks.base import Scores
from fedmia.attacks.loss_slope import LossSlope
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.data.images import digests
from fedmia.federation.plan import make_plan
from fedmia.settings.commands.experiment import Experiment
from tests.small_runs import SMALL, Report, ran

TINY = f"{SMALL} --clients 3 --rounds 2 --attack.similarity.views 2 --attacks similarity"
PASSIVE = f"{TINY},loss-slope --attacker passive --attack.loss-slope.pairs 1 "


def experiment(flags: str) -> Experiment:
    settings = parse(SIMULATE, shlex.split(flags)).settings
    assert isinstance(settings, Experiment)
    return settings


def names(rows: list[Report]) -> list[str]:
    return [row["name"] for row in rows]


def note(report: Report) -> list[str]:
    return [line for line in report["notes"] if "not tried untrained" in line]


@pytest.mark.parametrize(
    ("flags", "beside"),
    [
        ("--attacker none --attacks similarity", False),
        ("--attacker passive --attacks similarity", False),
        ("--attacker passive --attacks similarity,loss-slope", True),
        ("--attacker passive --attacks lira-rounds", True),
        ("--attacker passive --attacks rmia-rounds", True),
        ("--attacker active --attacks ascent", True),
        ("--attacker server --attacks similarity", True),
        ("--attacker none --attacks similarity --federation.placebo true", True),
        ("--attacker active --attacks ascent --federation.placebo false", False),
        ("--attacker passive --attacks loss-slope --federation.placebo false", False),
    ],
)
def test_placebo__is_run_where_asked_or_where_no_other_control_can_fail(
    flags: str, beside: bool
) -> None:
    """`untrained` is a control of what one model tells."""
    assert experiment(flags).has_placebo is beside


@pytest.mark.slow(seconds=2)
def test_passive__attacks_on_rounds_have_the_placebo_for_their_control(tmp_path: Path) -> None:
    assert make_plan(experiment(PASSIVE)).total_rounds() == 2 * 2
    report = ran(PASSIVE, tmp_path / "RUN")
    assert names(report["controls"]["untrained"]) == ["similarity"]
    assert names(report["controls"]["placebo"]) == ["similarity", "loss-slope"]
    assert report["split"]["placebo"] == 32 and report["config"]["federation"]["placebo"] == "auto"
    aucs = [{row["name"]: row["auc"] for row in report["controls"]["placebo"]}]
    aucs += [{row["name"]: row["auc"] for row in report["attacks"]}]
    assert aucs[0]["loss-slope"] not in (0.5, aucs[1]["loss-slope"])  # it scores, other models
    (line,) = note(report)
    assert line.startswith("loss-slope: ") and line.endswith("their control is the placebo.")
    assert not any("every score is the same" in line for line in report["notes"])


class Knowing(LossSlope):
    """Told who the members are."""

    members: ClassVar[set[bytes]] = set()

    def score(self, view: Any, images: Tensor) -> Scores:
        return np.array([float(name in self.members) for name in digests(images.numpy())])


def test_planted__what_tells_members_in_the_placebo_voids_the_run(tmp_path: Path) -> None:
    """An attack on rounds that knows the answer without any model: `untrained` is not asked."""
    plan = make_plan(experiment(PASSIVE))
    Knowing.members = set(digests(plan.cast.data.images[plan.cast.members]))
    attack = f"{__name__}:Knowing"
    report = ran(f"{TINY},{attack} --attacker passive", tmp_path / "RUN")
    assert report["verdict_code"] == "control-failed"
    assert f"{attack} under the placebo control" in report["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("attacker", ["passive", "active", "server"])
def test_false__leaves_it_out_and_says_who_has_no_control(attacker: str, tmp_path: Path) -> None:
    attack = {"passive": "loss-slope", "active": "ascent", "server": "all-for-one"}[attacker]
    flags = f"{TINY},{attack} --attacker {attacker} --federation.placebo false"
    if attacker == "active":
        flags += " --attack.ascent.steps 1 --attack.ascent.lr 0.1 --attack.ascent.pairs 1"
    assert make_plan(experiment(flags)).total_rounds() == 2 + (attacker == "active")
    report = ran(flags, tmp_path / "RUN")
    assert "placebo" not in report["controls"] and report["split"]["placebo"] == 0
    also = ["ascent-level"] * (attack == "ascent")
    assert names(report["attacks"]) == ["similarity", attack, *also]
    if attacker == "active":
        assert names(report["controls"]["untrained"]) == ["similarity", "ascent", "ascent-level"]
        assert note(report) == []
    else:
        assert names(report["controls"]["untrained"]) == ["similarity"]
        (line,) = note(report)
        assert line.startswith(f"{attack}: ") and "no control: --federation.placebo true" in line
