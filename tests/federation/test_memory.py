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
from fedmia.federation.plan import fingerprint, make_client_setup, make_plan
from fedmia.runtime.progress import Display
from fedmia.ssl.train import Job
from tests.small_runs import SMALL, call_main

TINY = SMALL + "--clients 3 --rounds 4 --attacks none "


def test_round__leaves_no_desk_and_no_job_to_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: dict[str, list[weakref.ref[Any]]] = {"train": [], "run": []}
    most = dict.fromkeys(alive, 0)

    def noted(kind: str, work: Any) -> Any:
        def call(self: Any) -> Any:
            alive[kind].append(weakref.ref(self))
            return work(self)

        return call

    def round(*_: object) -> None:
        for kind, refs in alive.items():
            most[kind] = max(most[kind], sum(ref() is not None for ref in refs))

    for cls, name in ((ClientRound, "train"), (Job, "run")):
        monkeypatch.setattr(cls, name, noted(name, getattr(cls, name)))
    monkeypatch.setattr(Display, "round", round)
    gc.disable()
    try:
        assert call_main(shlex.split(TINY)) == 0
    finally:
        gc.enable()
    assert len(alive["run"]) == 12
    assert max(most.values()) <= 2  # of a thread that is on its way out of a client


def test_site__holds_the_images_that_have_a_role(tmp_path: Path) -> None:
    """Of a source like STL-10's unlabelled images few have one, and no other is touched."""
    source = "--dataset synthetic --data.pixels 64 --data.images 600 --split.public 8 "
    plan = make_plan(parse(SIMULATE, shlex.split(source + TINY)).settings)
    used = np.sort(plan.cast.used)
    client_setup = make_client_setup(plan, tmp_path, Event())
    assert 0 < len(used) < 200 and client_setup.images.shape == (600, 3, 64, 64)
    assert np.array_equal(client_setup.images[used], plan.cast.data.images[used])
    assert not np.delete(client_setup.images, used, axis=0).any()
    assert client_setup.image_array.stat().st_blocks * 512 < client_setup.images.nbytes / 2

    def changed(at: int) -> str:
        images = plan.cast.data.images.copy()
        images[at] ^= 1
        return fingerprint(
            replace(plan, cast=plan.cast.with_data(replace(plan.cast.data, images=images)))
        )

    assert changed(int(used[3])) != fingerprint(plan)
    assert changed(int(np.setdiff1d(np.arange(600), used)[0])) == fingerprint(plan)
