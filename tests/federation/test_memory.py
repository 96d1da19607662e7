"""What a client had at hand goes with its round: no circle of references holds its weights."""

from __future__ import annotations

import gc
import shlex
import weakref
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from clients.client_round import ClientRound
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.federation.rounds import FederatedRun
from fedmia.federation.run import fingerprint, make_client_context, prepare
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
    works, runs, notes = ClientRound.train, Job.run, FederatedRun._note

    def train(self: ClientRound) -> Any:
        alive["desk"].append(weakref.ref(self))
        return works(self)

    def run(self: Job) -> Any:
        alive["job"].append(weakref.ref(self))
        return runs(self)

    def note(self: FederatedRun, *given: Any) -> Any:
        for kind, refs in alive.items():
            most[kind] = max(most[kind], sum(ref() is not None for ref in refs))
        return notes(self, *given)

    monkeypatch.setattr(ClientRound, "train", train)
    monkeypatch.setattr(Job, "run", run)
    monkeypatch.setattr(FederatedRun, "_note", note)
    gc.disable()
    try:
        assert main(shlex.split(TINY)) == 0
    finally:
        gc.enable()
    assert len(alive["job"]) == 12
    assert most["desk"] <= 2 and most["job"] <= 2  # of a thread that is on its way out of a client


def test_site__holds_the_images_that_have_a_role(tmp_path: Path) -> None:
    """Of a source like STL-10's unlabelled images few have one, and no other is touched."""
    source = "--dataset synthetic --data.pixels 64 --data.images 600 --split.public 8 "
    prepared = prepare(parse(SIMULATE, shlex.split(source + TINY)).settings)
    used = np.sort(prepared.split.used)
    client_context = make_client_context(prepared, tmp_path, Event())
    assert 0 < len(used) < 200 and client_context.images.shape == (600, 3, 64, 64)
    assert np.array_equal(client_context.images[used], prepared.data.images[used])
    assert not np.delete(client_context.images, used, axis=0).any()
    assert client_context.images_file.stat().st_blocks * 512 < client_context.images.nbytes / 2

    def changed(at: int) -> str:
        images = prepared.data.images.copy()
        images[at] ^= 1
        return fingerprint(replace(prepared, data=replace(prepared.data, images=images)))

    assert changed(int(used[3])) != fingerprint(prepared)
    assert changed(int(np.setdiff1d(np.arange(600), used)[0])) == fingerprint(prepared)
