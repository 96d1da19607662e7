"""A disk that is full, read-only or gone: one line, nothing lost, and the run goes on later."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmia.cli.command import DISK_FAILED
from fedmia.federation.rounds import FederatedRun
from fedmia.report.figures import draw
from fedmia.simulate import main as simulate
from fedmia.storage import durable
from fedmia.storage.durable import DiskError
from tests.federation.test_resume import read
from tests.storage.disk import failing

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
FLAGS = (
    "--clients 2 --train.local_epochs 1 --model.width 4 --split.members 24 --split.nonmembers 40 "
    "--split.known 8 --split.test 20 --device cpu --federation.snapshots 1 --rounds 3 "
    "--attacks similarity --attack.similarity.views 4 --quiet "
)


@pytest.fixture(autouse=True)
def plain(monkeypatch: Patch) -> None:
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of the run that nothing befell."""
    out = tmp_path_factory.mktemp("whole") / "RUN"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "draw_all", lambda scores, report: {})
        assert simulate([*shlex.split(FLAGS), "--out", str(out)]) == 0
    return read(out)


def refusal(capsys: Capture, out: Path, code: int) -> str:
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("fedmia: the run failed: ")
    assert os.strerror(code) in err and str(out) in err
    return err


@pytest.mark.parametrize(
    ("name", "after", "code"),
    [
        ("index.json", 4, errno.ENOSPC),
        ("report.json", 0, errno.EROFS),
        pytest.param("clients", 3, errno.EIO, marks=pytest.mark.slow),
        pytest.param("scores", 1, errno.ENOSPC, marks=pytest.mark.slow),
        pytest.param("snapshots", 1, errno.ENOSPC, marks=pytest.mark.slow),
        pytest.param("checkpoint", 0, errno.EDQUOT, marks=pytest.mark.slow),
    ],
)
def test_simulate__one_line_and_resume_gives_the_same_report(
    name: str, after: int, code: int, report: dict[str, Any], tmp_path: Path, monkeypatch: Patch,
    capsys: Capture,
) -> None:  # fmt: skip
    out = tmp_path / "RUN"
    with failing(out, monkeypatch, name, after, code):
        assert simulate([*shlex.split(FLAGS), "--out", str(out)]) == DISK_FAILED
    assert f"; --resume {out} goes on with this run" in refusal(capsys, out, code)
    assert not (out / "report.json").exists()
    assert simulate(["--resume", str(out), "--quiet"]) == 0
    assert read(out) == report


def test_simulate__a_folder_that_vanishes_is_not_made_again(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    out, note = tmp_path / "RUN", FederatedRun._note

    def vanishing(self: FederatedRun, branch: str, number: int, *rest: Any) -> Any:
        if number == 2:
            assert self.checkpoint is not None
            self.checkpoint.wait_for_writes()
            shutil.rmtree(out)
        return note(self, branch, number, *rest)

    monkeypatch.setattr(FederatedRun, "_note", vanishing)
    assert simulate([*shlex.split(FLAGS), "--out", str(out)]) == DISK_FAILED
    refusal(capsys, out, errno.ENOENT)
    assert not out.exists()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 64 KiB."""
    place = tmp_path / "full"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)],
        check=False, capture_output=True,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_real_full_disk__names_the_file_and_leaves_the_one_before(full: Path) -> None:
    import torch

    from fedmia.storage.archive import Archive
    from fedmia.storage.snapshot import write_tensors

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
        assert str(error.value) == f"cannot write '{full / name}': No space left on device"
    assert sorted(p.name for p in full.iterdir()) == ["a", "report.json"]
    assert (full / "report.json").read_bytes() == b"old"


@pytest.mark.slow(seconds=30)
def test_real_disk_that_is_full_and_then_grows(full: Path, report: dict[str, Any]) -> None:
    """In a process of its own, which ends with one line and no signal."""
    command = [sys.executable, "-m", "fedmia.simulate"]
    out = full / "RUN"

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, timeout=300
        )

    done = ran(*shlex.split(FLAGS), "--out", str(out))
    assert done.returncode == DISK_FAILED and done.stderr.count("\n") == 1, done.stderr
    assert "No space left on device" in done.stderr
    subprocess.run(["mount", "-o", "remount,size=64m", str(full)], check=True)
    done = ran("--resume", str(out), "--quiet")
    assert done.returncode == 0, done.stderr
    ours = read(out)
    assert ours["attacks"] == report["attacks"] and ours["rounds"] == report["rounds"]
