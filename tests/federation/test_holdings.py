"""What a checkpoint carries of a run: all that its objects hold and that is not made again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.ledger import Ledger
from fedmia.federation.notetaker import NoteTaker
from fedmia.federation.rounds import FederatedRun
from tests.small_runs import BRANCHES, Killed, simulate

# What is made again from settings and images, or is empty between two rounds, by class.
REMADE: Mapping[str, set[str]] = {
    "FederatedRun": {
        "experiment", "client_setup", "split", "probe", "display", "checkpoint", "schedule",
        "holder", "active", "watch", "recording", "store", "failure", "_root", "_unsaved",
        "_crafted", "_replay", "_sent", "_line",
    },
    "BranchState": set(),
    "FailurePolicy": {
        "clients", "on_failure", "timeout", "least", "indispensable", "say", "hint",
    },
    "NoteTaker": {"setup", "attacker", "attack", "images", "_lock"},
    "Scaffold": {"phase", "nodes", "_global"},  # of one stretch of rounds
}  # fmt: skip


def assert_same(one: Any, other: Any, where: str) -> None:
    """Values, tensors and objects of REMADE are the same, but for what is remade."""
    if type(one).__name__ in REMADE:
        one, other = (
            {n: v for n, v in vars(o).items() if n not in REMADE[type(o).__name__]}
            for o in (one, other)
        )
    if isinstance(one, Mapping):
        assert one.keys() == other.keys(), where
        for name, value in one.items():
            assert_same(value, other[name], f"{where}.{name}")
    elif isinstance(one, Tensor | np.ndarray):
        assert one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True), where
    else:
        assert one == other, where


@pytest.mark.slow
def test_checkpoint__holds_all_that_a_run_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute that is added must be carried, or be said to be remade; and each thing that is
    carried is what it was, bit by bit, when the checkpoint is read again."""
    runs, seen = FederatedRun.run, list[FederatedRun]()

    def run(self: FederatedRun, grid: Any) -> None:
        runs(self, grid)
        seen.append(self)
        raise Killed  # before anything is scored

    monkeypatch.setattr(FederatedRun, "run", run)
    with pytest.raises(Killed):
        simulate(f"{BRANCHES} --attack.ascent.lr 1", tmp_path / "RUN")
    (live,) = seen
    notes = live.notes
    assert live.checkpoint is not None and notes is not None
    root, key = live.checkpoint.root, live.checkpoint.key
    other = FederatedRun(
        live.plan, live.client_setup, Ledger(root / "clients"), live.recording, live.probe,
        NoteTaker(notes.setup, notes.attack), live.watch, live.display,
        Checkpoint(root, key=key),
    )  # fmt: skip
    other.resume()
    assert live.head is not None and live.forked is not None and live.aggregation is not None
    assert live.rounds and any(live.trained)
    assert_same(live, other, "run")
    for branch in live.branches():
        for client in range(3):
            one, two = live.store.load(branch, client), other.store.load(branch, client)
            assert one is not None and two is not None
            assert_same(vars(one), vars(two), f"{branch} {client}")
