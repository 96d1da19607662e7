"""A disk that is full, read-only or gone: one line, nothing lost, and the run goes on later."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedmia.cli.command import DISK_FAILED
from fedmia.federation.checkpoint import Checkpoint
from fedmia.federation.ledger import Ledger
from fedmia.storage import durable
from fedmia.storage.archive import Archive
from fedmia.storage.durable import DiskError
from fedmia.storage.snapshot import write_tensors
from tests.small_runs import (
    SIMILARITY,
    SMALL,
    WATCHED,
    Report,
    in_round,
    ran,
    read,
    resume,
    simulate,
)
from tests.storage.disk import failing

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
FLAGS = f"{SMALL} {SIMILARITY} --clients 2 --rounds 3 --checkpoint-every 0 "


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of the run that nothing befell."""
    return ran(FLAGS, tmp_path_factory.mktemp("whole") / "RUN")


def refusal(capsys: Capture, out: Path, code: int) -> str:
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("fedmia: the run failed: ")
    assert os.strerror(code) in err and str(out) in err
    return err


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(
    ("name", "after", "code"),
    [
        ("index.json", 4, errno.ENOSPC),
        ("report.json", 0, errno.EROFS),
        pytest.param("clients", 3, errno.EIO, marks=pytest.mark.slow),
        pytest.param("scores", 1, errno.ENOSPC, marks=pytest.mark.slow),
        pytest.param("recording", 1, errno.ENOSPC, marks=pytest.mark.slow),
        pytest.param("checkpoint", 0, errno.EDQUOT, marks=pytest.mark.slow),
    ],
)
def test_simulate__one_line_and_resume_gives_the_same_report(
    name: str, after: int, code: int, report: Report, tmp_path: Path, monkeypatch: Patch,
    capsys: Capture,
) -> None:  # fmt: skip
    out = tmp_path / "RUN"
    with failing(out, monkeypatch, name, after, code):
        assert simulate(FLAGS, out) == DISK_FAILED
    assert f"; --resume {out} goes on with this run" in refusal(capsys, out, code)
    assert not (out / "report.json").exists()
    assert resume(out) == 0 and read(out) == report


def test_simulate__a_folder_that_vanishes_is_not_made_again(
    tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "RUN"
    in_round("main", 2, lambda: out.rename(tmp_path / "away"))
    assert simulate(FLAGS + WATCHED, out) == DISK_FAILED
    refusal(capsys, out, errno.ENOENT)
    assert not out.exists()


def test_checkpoint__is_not_written_after_one_that_could_not_be(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """The next one shares files of the one before, which are not there."""
    checkpoint, ledger = Checkpoint(tmp_path), Ledger(tmp_path / "clients")
    with failing(tmp_path, monkeypatch, "index.json"):
        checkpoint.write({}, {"forked": ({"w": torch.zeros(2)}, {})}, ledger)
        for _ in range(2):
            with pytest.raises(DiskError):
                checkpoint.wait_for_writes()
    with pytest.raises(DiskError):
        checkpoint.write({}, {"forked": "forked"}, ledger)
    checkpoint.close()
    assert not checkpoint.exists()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 64 KiB."""
    place = tmp_path / "full"
    place.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(line, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_real_full_disk__names_the_file_and_leaves_the_one_before(full: Path) -> None:
    durable.write({full / "report.json": "old"})
    big = torch.zeros(30_000)
    for write, name in (
        (lambda: durable.write({full / "page": bytes(100_000)}), "page"),
        (lambda: durable.write({full / "report.json": "new", full / "b": bytes(99_999)}), "b"),
        (lambda: write_tensors({"w": big}, full / "w.safetensors"), "w.safetensors"),
        (lambda: Archive(full / "a").save("x", big.numpy()), "a/x.safetensors"),
    ):
        with pytest.raises(DiskError) as error:
            write()
        full_disk = f"No space left on device: {durable.CURES[errno.ENOSPC]}"
        assert str(error.value) == f"cannot write '{full / name}': {full_disk}"
    assert sorted(p.name for p in full.iterdir()) == ["a", "report.json"]
    assert (full / "report.json").read_bytes() == b"old"


@pytest.mark.slow
def test_real_disk_that_is_full_and_then_grows(full: Path, report: Report, capsys: Capture) -> None:
    assert simulate(FLAGS, full / "RUN") == DISK_FAILED
    refusal(capsys, full / "RUN", errno.ENOSPC)
    subprocess.run(["mount", "-o", "remount,size=64m", str(full)], check=True)
    assert resume(full / "RUN") == 0 and read(full / "RUN") == report
