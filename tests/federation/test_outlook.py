"""What a run says before its first round, and how far a round is while it lasts."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.federation.outlook import describe_disk, describe_start
from fedmia.federation.plan import make_plan
from fedmia.federation.schedule import Schedule
from fedmia.runtime.progress import Display
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.tree import from_tree
from tests.small_runs import call_main
from tests.snapshots import Snapshot

TINY = (
    "--clients 3 --train.local_epochs 1 --train.batch_size 4 --model.width 4 --split.members 30 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --partition iid "
)
FILE = "--clients 4 --attacks none --device cpu --partition iid --dataset npz:"


@pytest.mark.parametrize(
    "flags",
    [
        TINY + "--rounds 4 --attacks ascent --attacker active --attack-rounds 1",
        TINY.replace("batch_size 4", "batch_size 21") + "--rounds 2 --attacks none --ssl byol",
        TINY.replace("clients 3", "clients 1") + "--rounds 1 --attacks none",
        TINY + "--rounds 1 --attacks none --pretrain.mode pooled --pretrain.epochs 7",
        FILE + "400.npz",
        FILE + "8400.npz",
    ],
    ids=["attacked", "too few images", "one client", "pooled", "all images", "at most 5,000"],
)
def test_start__images_clients_cuts_and_rounds(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.chdir(tmp_path)
    for count in (400, 8400):
        pixels = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 2, 2)
        np.savez(f"{count}.npz", x=np.tile(pixels, (1, 4, 4)))
    settings: Experiment = parse(SIMULATE, shlex.split(flags)).settings
    lines = describe_start(make_plan(settings))
    snapshot("\n".join(lines))


def test_round__shows_its_clients_as_they_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress grows with the images of each client, and is whole where the round ends."""
    states, plain = list[tuple[str, float]](), Display.reply

    def reply(self: Display, share: float, clients: int) -> None:
        plain(self, share, clients)
        states.append((self.state().partition(",")[0], self._bar.tasks[0].completed))
        assert f"client {len(states) % 3 or 3}/3" in self.state()

    monkeypatch.setattr(Display, "reply", reply)
    assert call_main(shlex.split(TINY + "--rounds 2 --attacks none --quiet")) == 0
    assert [text for text, _ in states] == ["rounds 0/2"] * 3 + ["main rounds 1/2"] * 3
    assert [done for _, done in states] == pytest.approx([1 / 3, 2 / 3, 0.99, 4 / 3, 5 / 3, 1.99])


def test_disk__models_of_each_branch_and_updates_of_each_client_are_counted() -> None:
    state = {"w": torch.zeros(1_000_000)}
    federation = {"rounds": 8, "snapshots": 4, "clients": 3}
    plain = Schedule(from_tree(Experiment, {"federation": federation}))
    rounds = len(plain.evaluated())
    (line,) = describe_disk(plain, state, ["main"])
    assert line == f"at most {rounds} models are kept: {4 * rounds:.0f} MB of disk"
    kept = Schedule(from_tree(Experiment, {"federation": {**federation, "keep_updates": 2}}))
    (line,) = describe_disk(kept, state, ["main", "placebo"])
    models = 2 * (rounds + 2)  # with those before the rounds 4 and 8
    assert f"{models} models and 12 updates of clients" in line
    assert f"{4 * (models + 12):.0f} MB" in line
    assert describe_disk(plain, {"w": torch.zeros(10)}, ["main"]) == []
