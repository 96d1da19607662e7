"""What a client had at hand goes with its round: no circle of references holds its weights."""

from __future__ import annotations

import gc
import shlex
import weakref
from typing import Any

import pytest

from clients.desk import Desk
from fedmia.federation.rounds import Federation
from fedmia.simulate import main
from fedmia.ssl.train import Job

TINY = (
    "--clients 3 --rounds 4 --train.local_epochs 1 --model.width 4 --split.members 24 "
    "--split.nonmembers 48 --split.known 8 --split.test 20 --device cpu --federation.snapshots 1 "
    "--attacker none --attacks none --quiet"
)


def test_round__leaves_no_desk_and_no_job_to_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: dict[str, list[weakref.ref[Any]]] = {"desk": [], "job": []}
    most: dict[str, int] = {"desk": 0, "job": 0}
    works, runs, notes = Desk.train, Job.run, Federation._note

    def train(self: Desk) -> Any:
        alive["desk"].append(weakref.ref(self))
        return works(self)

    def run(self: Job) -> Any:
        alive["job"].append(weakref.ref(self))
        return runs(self)

    def note(self: Federation, *given: Any) -> Any:
        for kind, refs in alive.items():
            most[kind] = max(most[kind], sum(ref() is not None for ref in refs))
        return notes(self, *given)

    monkeypatch.setattr(Desk, "train", train)
    monkeypatch.setattr(Job, "run", run)
    monkeypatch.setattr(Federation, "_note", note)
    gc.disable()
    try:
        assert main(shlex.split(TINY)) == 0
    finally:
        gc.enable()
    assert len(alive["job"]) == 12
    assert most["desk"] <= 2 and most["job"] <= 2  # of a thread that is on its way out of a client
