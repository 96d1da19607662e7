"""What a run says before its first round, and which rounds it scores and keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedmia.recording import Recording
from tests.commands import fedmia
from tests.small_runs import ran
from tests.snapshots import Snapshot

TINY = (
    "--clients 3 --train.local_epochs 1 --train.batch_size 4 --model.width 4 --split.members 30 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --partition iid "
)
FILE = "--clients 4 --attacks none --device cpu --partition iid --dataset npz:"


def said(flags: str) -> list[str]:
    """The lines before the first round, of which there is none."""
    done = fedmia(f"simulate {flags} --strategy tests.watched:Refuses")
    assert done.code == 1 and "no round is wanted" in done.err
    lines = done.err.removesuffix("\n").splitlines()
    return [line.removeprefix("fedmia: ") for line in lines if "no round is wanted" not in line]


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
    snapshot("\n".join(said(flags)))


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ("", "at most 5 models are kept: "),
        # With those before the rounds 4 and 8; of each branch.
        ("--federation.keep_updates 2", "at most 7 models and 6 updates of clients are kept: "),
        ("--federation.keep_updates 2 --federation.placebo true --attacks similarity",
         "at most 14 models and 12 updates of clients are kept: "),
    ],
)  # fmt: skip
def test_disk__models_of_each_branch_and_updates_of_each_client_are_counted(
    more: str, kept: str
) -> None:
    flags = TINY.replace("width 4", "width 64").replace("--partition iid", "")
    attacks = "" if "--attacks" in more else "--attacks none"
    lines = said(f"{flags} --rounds 8 --federation.snapshots 4 {more} {attacks}")
    (line,) = [line for line in lines if "of disk" in line]
    assert line.startswith(kept), line
    files = sum(int(word) for word in kept.split() if word.isdigit())
    size = float(line.split(": ")[1].split(" MB")[0].replace(",", "")) / files
    assert 3.5 < size < 4.5  # a SmallNet of width 64, in MB


ACTIVE = "--clients 5 --rounds 10 --attacker active --attack-rounds 3 --attacks ascent "


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(
    ("flags", "scored", "kept"),
    [
        (ACTIVE + "--federation.snapshots 4", [0, 2, 5, 7, 8, 10], []),
        ("--rounds 10 --federation.snapshots 1 --federation.keep_updates 3",
         [0, 2, 6, 9, 10], [3, 7, 10]),
        ("--rounds 8 --federation.snapshots 2 --attacker server --attacks tests.watched:OnServer",
         [0, 3, 4, 7, 8], [4, 8]),
        ("--rounds 9 --attacker server --attacks similarity --federation.keep_updates 0 "
         "--federation.snapshots 1 --attack.similarity.views 4", [0, 8, 9], []),
    ],
)  # fmt: skip
def test_rounds__that_are_scored_and_those_whose_updates_stay(
    flags: str, scored: list[int], kept: list[int], tmp_path: Path
) -> None:
    """Updates stay with the model before their round."""
    line = TINY if "--clients" not in flags else TINY.replace("--clients 3", "")
    attacks = "" if "--attacks" in flags else "--attacks none"
    ran(f"{line} --strategy tests.watched:Still --quiet {flags} {attacks}", tmp_path / "RUN")
    recording = Recording(tmp_path / "RUN" / "recording")
    assert recording.rounds() == scored and [*recording.updates()] == kept
