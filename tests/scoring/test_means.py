"""What an attacker of a run has: a budget of queries, fewer known images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import Tensor

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.threat import Threat
from tests.commands import fedmia
from tests.equivalence.conftest import tiny
from tests.small_runs import ran

SEVERAL = "similarity,lpla,dataset-inference --attack.similarity.views 3 "
SEVERAL += "--attack.dataset-inference.views 3"
FLAGS = tiny(
    "--attacker passive --rounds 2 --split.known 12 --split.members 40 --federation.snapshots 2"
)
KNOWN = 12  # images a side
HELD = list[tuple[int, int]]()


@dataclass
class Holds(Attack):
    """Notes how many images it knows and holds."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("white_box", "client")
    looks_at: ClassVar[tuple[str, ...]] = ("features",)

    def fit(self, view: Any, known: Known, rng: Any) -> None:
        HELD.append((len(known.members), len(view.held)))

    def score(self, view: Any, images: Tensor) -> Scores:
        return np.arange(len(images), dtype=float)


@dataclass
class Void(Holds):
    """Its scores are no numbers."""

    def score(self, view: Any, images: Tensor) -> Scores:
        return np.full(len(images), np.nan)


@pytest.mark.slow
def test_query_budget__attacks_keep_to_it_or_do_not_run(tmp_path: Path) -> None:
    free = ran(f"{FLAGS} --attacks lpla", tmp_path / "free")["attacks"][0]["queries"]
    budget = free - 4
    report = ran(f"{FLAGS} --attacks {SEVERAL} --query-budget {budget}", tmp_path / "RUN")
    (attack,), (control,) = report["attacks"], report["controls"]["untrained"]
    assert attack["name"] == "lpla" and control["queries"] == attack["queries"] == budget
    note = f"lpla: the query budget of {budget} leaves {KNOWN - 2} known images a side."
    assert note in report["notes"]
    assert {name: why.partition(":")[2][:16] for name, why in report["not_run"].items()} == {
        "similarity": " needs at least ", "dataset-inference": "",
    }  # fmt: skip
    assert "not on data sets" in report["not_run"]["dataset-inference"]
    assert not report["dataset_inference"]
    assert {*report["rounds"][-1]["leakage"]} == {"lpla"}


@pytest.mark.slow
def test_query_budget__an_active_attack_over_it_does_not_run(tmp_path: Path) -> None:
    flags = FLAGS.replace("passive", "active") + (
        " --attacks lpla,ascent --attack.ascent.lr 5 --query-budget 100 --attack-rounds 1 "
        "--federation.placebo false"
    )
    report = ran(flags, tmp_path / "RUN")
    assert [a["name"] for a in report["attacks"]] == ["lpla"]
    assert report["attacks"][0]["queries"] <= 100
    assert report["not_run"]["ascent"].endswith("100 of 100 left")


def test_sweep__of_known_images_is_of_those_that_the_attacker_holds_and_not_of_its_own(
    tmp_path: Path,
) -> None:
    """Scores that are not finite cost their own attack alone."""
    HELD.clear()
    names = f"{__name__}:Holds,{__name__}:Void"
    report = ran(f"{FLAGS} --attacks {names} --sweep known=3", tmp_path / "RUN", 1)
    assert {known for known, _ in HELD} >= {3, KNOWN}
    (own,) = {held - 2 * known for known, held in HELD if known in (3, KNOWN)}
    assert own > KNOWN
    assert [a["name"] for a in report["attacks"]] == [f"{__name__}:Holds"]
    assert report["not_run"][f"{__name__}:Void"].endswith("scores_members are not finite")


@pytest.mark.slow
def test_sweep__of_budgets(tmp_path: Path) -> None:
    report = ran(f"{FLAGS} --attacks {SEVERAL} --sweep query_budget=10,1000", tmp_path / "R")
    rows = report["sweep"]
    assert len(rows) == 4 and all("needs at least" in (row["not_run"] or "") for row in rows[:2])
    assert all(row["scored"]["queries"] <= 1000 for row in rows[2:])


@pytest.mark.parametrize(
    ("flags", "said"),
    [("--query-budget 0", "0, must be >= 1"), ("--sweep known", "known=N,N,..")],
)
def test_options__are_refused_in_one_line(flags: str, said: str) -> None:
    done = fedmia(f"simulate {flags}")
    assert done.code == 2 and said in done.err
