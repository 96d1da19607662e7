"""What a checkpoint carries of a run: all that its objects hold and that is not made again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.ledger import Ledger
from fedmia.federation.rounds import FederatedRun
from fedmia.report.figures import draw
from fedmia.simulate import main

TINY = (
    "--clients 3 --train.local_epochs 1 --model.width 4 --split.members 24 --split.nonmembers 48 "
    "--split.known 8 --split.test 20 --device cpu --federation.snapshots 1 --rounds 4 "
    "--attack-rounds 2 --attacker active --attacks similarity,ascent --attack.similarity.views 4 "
    "--attack.ascent.pairs 1 --attack.ascent.lr 1 --strategy scaffold --quiet "
)
# Everything that the objects of a run hold, by attribute: what a checkpoint CARRIES, what is made
# again from the settings and the images (REBUILT), and what is empty between two rounds (PASSING).
CARRIED, REBUILT, PASSING = "carried", "rebuilt", "passing"
HOLDINGS: Mapping[str, Mapping[str, str]] = {
    "FederatedRun": {
        "head": CARRIED, "forked": CARRIED, "rounds": CARRIED, "store": CARRIED,
        "aggregation": CARRIED, "_trained": CARRIED, "round_recorder": CARRIED,
        "failure_policy": CARRIED,
        "snapshots": CARRIED,
        "watch": CARRIED,
        "experiment": REBUILT, "client_context": REBUILT, "split": REBUILT, "probe": REBUILT,
        "display": REBUILT, "checkpoint": REBUILT, "schedule": REBUILT, "holder": REBUILT,
        "active": REBUILT, "_unsaved": REBUILT, "_root": REBUILT,
        "failure": PASSING, "_crafted": PASSING, "_fork": PASSING,
    },
    "BranchState": dict.fromkeys(("branch", "round", "state", "strategy"), CARRIED),
    "FailurePolicy": {
        "gone": CARRIED, "faults": CARRIED,
        "clients": REBUILT, "on_failure": REBUILT, "timeout": REBUILT, "least": REBUILT,
        "indispensable": REBUILT, "say": REBUILT, "hint": REBUILT,
    },
    "TrajectoryRecorder": {
        "readings": CARRIED, "queries": CARRIED,
        "choices": CARRIED,
        "observer": REBUILT, "attack": REBUILT, "targets": REBUILT, "_at": REBUILT,
        "_lock": REBUILT,
    },
    "Ledger": {
        "_held": CARRIED, "_files": CARRIED, "_serial": CARRIED, "_waiting": CARRIED,
        "root": REBUILT, "room": REBUILT, "_uses": REBUILT, "_told": REBUILT, "_bytes": REBUILT,
        "_lock": REBUILT, "_unforced": REBUILT,
    },
    "FederatedStrategy": {
        "course": PASSING, "nodes": PASSING, "_global": PASSING,  # of one stretch of rounds
    },
}  # fmt: skip


@pytest.mark.slow
def test_holdings__name_all_that_a_run_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute that is added must be said to be carried, rebuilt or empty between rounds; and
    each thing that is carried is what it was, bit by bit, when the checkpoint is read again."""
    runs, seen = FederatedRun.run, list[tuple[FederatedRun, Any]]()

    def run(self: FederatedRun, grid: Any) -> None:
        runs(self, grid)
        seen.append((self, self.round_recorder.notes()))  # type: ignore[union-attr]

    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})
    monkeypatch.setattr(FederatedRun, "run", run)
    monkeypatch.setattr(Checkpoint, "delete", lambda self: None)  # it stays on disk
    assert main([*shlex.split(TINY), "--out", str(tmp_path / "RUN")]) == 0
    ((live, notes),) = seen
    assert live.head is not None and live.round_recorder is not None
    for held in (live, live.head, live.failure_policy, live.round_recorder, live.store):
        assert set(vars(held)) == set(HOLDINGS[type(held).__name__]), type(held).__name__
    strategy = live.head.strategy
    passing = set(HOLDINGS["FederatedStrategy"])
    assert set(vars(strategy)) - passing == {"weighting", "server_lr", "control"}

    restored_is_what_was_held(live, *notes)


def restored_is_what_was_held(live: FederatedRun, readings: Any, queries: Any) -> None:
    assert live.checkpoint is not None
    root, key = live.checkpoint.root, live.checkpoint.key
    other = replace(
        live, store=Ledger(root / "clients"), rounds=[], head=None, forked=None,
        failure_policy=replace(live.failure_policy, gone=set(), faults=[]),
        checkpoint=Checkpoint(root, key=key),
        aggregation=None,
    )  # fmt: skip
    other.resume()
    assert other.head is not None and live.head is not None
    for mine, theirs in ((live.head, other.head), (live.forked, other.forked)):
        assert mine is not None and theirs is not None
        assert (mine.branch, mine.round) == (theirs.branch, theirs.round)
        assert all(t.equal(theirs.state[n]) for n, t in mine.state.items())
        controls = mine.strategy.control, theirs.strategy.control  # type: ignore[attr-defined]
        assert controls[0].keys() == controls[1].keys() and controls[0]
        assert all(t.equal(controls[1][n]) for n, t in controls[0].items())
    assert other.rounds == live.rounds
    assert other.aggregation == live.aggregation is not None
    assert other._trained == live._trained and any(live._trained)
    after = other.round_recorder.notes()  # type: ignore[union-attr]
    assert after[1] == queries and after[0].keys() == readings.keys()
    assert all(t.nan_to_num().equal(after[0][n].nan_to_num()) for n, t in readings.items())
    for branch in live.branches():
        for client in range(3):
            one, two = live.store.load(branch, client), other.store.load(branch, client)
            assert one is not None and two is not None and one.memory == two.memory
            assert all(t.equal(two.tensors[n]) for n, t in one.tensors.items())
    assert {n for n, how in HOLDINGS["FederatedRun"].items() if how == CARRIED} == {
        "head", "forked", "rounds", "store", "round_recorder", "failure_policy", "snapshots",
        "watch", "aggregation", "_trained",
    }  # fmt: skip
