"""A whole run on a pretended card: the bits of a CPU, in every branch, upload and replay."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from clients import app
from fedmia.federation import backends
from fedmia.ssl.base import State, on_device
from tests.counts import watched
from tests.pretend_card import CARD, pretend_card

from .conftest import ACTIVE, Finished, Run, federated, planned, same, weights

PLACEBO = "--federation.placebo true --attacks similarity --attack.similarity.views 4 "
KRUM = "--clients 5 --strategy krum "


def run(flags: str, folder: Path, device: str) -> Run:
    """The run of a device, whose workers' threads have the card too."""
    with pretend_card() as watch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "answer", watched(watch, app.answer))
        patch.setattr(
            backends, "together_app", lambda setup: watched(watch, app.together_app(setup))
        )
        return federated(planned(flags), folder, device=device)


def on_host(state: State) -> State:
    return on_device(state, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ACTIVE + "--strategy fedavgm ",
        ACTIVE + "--strategy scaffold ",
        ACTIVE + KRUM,
        PLACEBO + "--strategy dp-fedavg --defense gaussian ",
        PLACEBO + "--strategy median --clients-at-once 4 ",
        PLACEBO + "--strategy fedema --defense laplace ",
    ],
)
def test_run__on_a_card_has_a_cpus_bits(flags: str, tmp_path: Path) -> None:
    on_cpu, on_card = (run(flags, tmp_path / kind, kind) for kind in ("cpu", CARD.type))
    for branch in on_cpu.recording.records:
        one, other = weights(on_cpu, branch), weights(on_card, branch)
        assert one.keys() == other.keys() and all(same(one[r], other[r]) for r in one)
        uploads, theirs = on_cpu.sent(branch), on_card.sent(branch)
        assert all(same(uploads[r], on_host(theirs[r])) for r in uploads)
    replays = on_cpu.recorder.played
    assert ("--attacker" in flags) == bool(replays)
    for branch, replay in replays.items():
        upload = {name: 1.1 * tensor for name, tensor in replay.received.items()}
        with pretend_card():
            there = on_card.recorder.played[branch].play(on_device(upload, CARD))
            assert {tensor.device for tensor in there.values()} == {CARD}
            assert same(replay.play(upload), on_host(there))
    assert [row.loss for row in on_cpu.rounds] == [row.loss for row in on_card.rounds]


def test_replay__of_a_round_on_a_card_is_that_on_a_cpu(finished: Finished) -> None:
    """What honest clients sent in it comes from files, on the host."""
    for replay in finished(ACTIVE).recorder.played.values():
        upload = {name: 1.1 * tensor for name, tensor in replay.received.items()}
        ended = replay.play(upload)
        with pretend_card():
            there = copy.copy(replay)
            there.received = on_device(replay.received, CARD)
            on_card = there.play(on_device(upload, CARD))
            assert {tensor.device for tensor in on_card.values()} == {CARD}
            assert same(ended, on_host(on_card))
