"""The parts of a run at work together: roles, pre-training, strategies, defences, failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedmia.settings import registry
from strategies.fedavg import FedAvg
from tests.commands import fedmia

Report = dict[str, Any]
TINY = (
    "--clients 4 --rounds 2 --train.local_epochs 1 --model.width 4 --split.members 32 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --device cpu "
)
CHEAP = "--attack.similarity.views 4 "
SIMILARITY = "--attacks similarity --federation.snapshots 1 " + CHEAP


def reported(flags: str) -> Report:
    """The report that `--json` prints."""
    ran = fedmia(f"simulate {flags} --json")
    assert ran.code == 0, ran.err
    report: Report = json.loads(ran.out)
    return report


@pytest.mark.slow
def test_attacker_none__the_outsiders_attacks_run() -> None:
    one = TINY.replace("--clients 4", "--clients 1")
    report = reported(f"{one}--attacks similarity,internal {CHEAP}")
    assert [a["vantage"] for a in report["attacks"]] == ["outsider"] * 2
    assert not any(a["under_attack"] for a in report["attacks"])
    assert report["paired"] == [] and set(report["controls"]) == {"untrained"}
    assert [c["role"] for c in report["clients"]] == ["honest"]


@pytest.mark.slow
def test_attacker_passive__two_of_them_that_do_not_train() -> None:
    flags = "--attacker passive --malicious 2 --attacker-trains false"
    report = reported(f"{TINY}{SIMILARITY} {flags}")
    assert [c["role"] for c in report["clients"]] == ["honest"] * 2 + ["passive"] * 2
    assert [c["auc"] is None for c in report["clients"]] == [False] * 2 + [True] * 2
    assert report["attacks"][0]["n_members"] == 32 - 8
    assert not report["attacks"][0]["under_attack"]


@pytest.mark.parametrize(
    ("seed", "scored"), [(0, False), pytest.param(2, True, marks=pytest.mark.slow)]
)
def test_attacker_active__says_so_if_it_took_part_in_no_attacked_round(
    seed: int, scored: bool
) -> None:
    """One attacked round, one client of four in it; one of these two seeds draws the attacker."""
    report = reported(
        f"{TINY}--attacker active --attacks ascent "
        f"--federation.participation 0.25 --federation.snapshots 1 --seed {seed}",
    )
    assert [a["name"] for a in report["attacks"]] == ["ascent", "ascent-level"] * scored
    why = [*report["not_run"].items()]
    assert why == [("ascent", "its client finished no attacked round")] * (not scored)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pooled", "public --split.public 16"])
def test_pretrain__comes_before_the_same_rounds(
    mode: str,
) -> None:
    """A server's epochs are no rounds."""
    report = reported(f"{TINY}{SIMILARITY} --pretrain {mode} --pretrain-epochs 20")
    assert [(r["round"], r["under_attack"]) for r in report["rounds"]] == [(1, False), (2, False)]
    assert ("pre-training was pooled" in report["verdict"]) is (mode == "pooled")
    losses = [r["loss"] for r in report["rounds"]]
    assert all(loss > 0 for loss in losses) and len(set(losses)) == len(losses)


STANDINGS: dict[str, tuple[str, str | None]] = {
    "dpsgd": ("--defense.epsilon 50", "heuristic"),
    "logit-dp": ("--ssl simclr --defense.epsilon 50", "guaranteed"),
    "logistic": ("--defense.epsilon 50", "guaranteed"),
    "laplace": ("--defense.scale 0.01", "guaranteed"),
    "gaussian": ("--defense.scale 0.01", "guaranteed"),
    "crop-range": ("", None),
    "weight-decay": ("", None),
    "early-stopping": ("--defense.after 1", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names("defense"))
def test_defense__its_epsilon_stands_with_the_defended_clients(name: str) -> None:
    more, standing = STANDINGS.get(name, ("", ""))
    report = reported(f"{TINY}--attacks none --defense {name} {more} --defended-clients 0-1")
    rows = [c["defence"] for c in report["clients"]]
    assert rows[2:] == [None, None] and [r["name"] for r in rows[:2]] == [name] * 2
    epsilon = rows[0]["epsilon"]
    if standing is None:
        assert epsilon is None
        return
    assert standing in ("", epsilon["standing"])
    assert epsilon["rounds"] == 2 and epsilon["value"] > 0
    if "epsilon" in more:
        assert epsilon["value"] <= 50 * 1.01


def test_training_that_diverges__is_one_line_with_what_helps() -> None:
    ran = fedmia(f"simulate {TINY}--attacks none --train.lr 1e30 --quiet")
    assert (ran.code, ran.out) == (1, "") and ran.err.count("\n") == 1
    assert "round 1: training diverged" in ran.err and "a lower train.lr 1e+30 helps" in ran.err


class Exploding(FedAvg):
    """From its third round on the rate is what blows the model up."""

    merged: ClassVar[list[int]] = []

    def aggregate(self, received: Any, updates: Any) -> Any:
        self.merged.append(1)
        plain: Any = super() if len(self.merged) > 2 else FedAvg()
        return plain.aggregate(received, updates)


@pytest.mark.parametrize("evaluated", ["every", "last"])
def test_server_that_diverges__is_named_and_the_finished_rounds_are_reported_on(
    evaluated: str, tmp_path: Path
) -> None:
    """From round 3 on the server's rate is what blows the model up, in a scored round or not."""
    Exploding.merged.clear()
    flags = TINY.replace("--rounds 2", "--rounds 4")
    flags += f"--quiet --attacks similarity {CHEAP}"
    flags += f"--strategy {__name__}:Exploding --strategy.server_lr 1e30 "
    flags += f"--federation.snapshots {4 if evaluated == 'every' else 2}"
    ran = fedmia(f"simulate {flags}", tmp_path / "RUN")
    assert ran.code == 1
    err = ran.err
    assert err.count("\n") == 1 and "strategy.server_lr 1e+30 or a lower train.lr" in err
    assert "fedmia: the run failed: round 3: training diverged: " in err
    report = json.loads((tmp_path / "RUN" / "report.json").read_text())
    assert report["interrupted"] == 2 and [row["round"] for row in report["rounds"]] == [1, 2]
