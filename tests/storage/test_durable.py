"""Files are forced before the name that makes them count, and names before others count on them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from fedmia.recording import RecordingWriter
from fedmia.storage import durable
from fedmia.storage.archive import Archive
from fedmia.storage.durable import CURES, WAYS_ROUND, DiskError
from fedmia.storage.snapshot import write_tensors
from tests.storage.disk import DELETED, KEPT, LOST, recorded

Patch = pytest.MonkeyPatch
FULL = f"No space left on device: {CURES[errno.ENOSPC]}"


def test_write__forces_files_renames_them_and_forces_their_folder(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    root = tmp_path / "RUN"
    with recorded(root, monkeypatch) as disk:
        durable.write({root / "a": b"1", root / "b": "2"})
    assert sorted(disk.calls[:2]) == [("fsync", "a.partial"), ("fsync", "b.partial")]
    assert disk.calls[2:5] == [("replace", "a"), ("replace", "b"), ("fsync", ".")]
    assert disk.states[LOST][-1] == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize("fate", [LOST, KEPT, DELETED])
def test_replaced_file__is_the_new_or_the_old_one_whatever_is_lost(
    fate: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    root = tmp_path / "RUN"
    with recorded(root, monkeypatch) as disk:
        durable.write({root / "a": b"old"})
        first = len(disk.states[fate])
        durable.write({root / "a": b"new"})
    contents = [tree.get("a") for tree in disk.states[fate][first - 1 :]]
    assert set(contents) == {b"old", b"new"} and contents[-1] == b"new"


def test_folders__stand_in_those_above_them(tmp_path: Path, monkeypatch: Patch) -> None:
    root = tmp_path / "RUN"
    with recorded(root, monkeypatch) as disk:
        durable.make_folder(root / "x" / "y")
    assert disk.states[LOST][-1] == {"x": None, "x/y": None}


def test_finished_scores__are_on_the_disk(tmp_path: Path, monkeypatch: Patch) -> None:
    root = tmp_path / "RUN"
    with recorded(root, monkeypatch) as disk:
        Archive(root / "scores").save("lpla", {"x": np.arange(3)})
    content = disk.states[LOST][-1]["scores/lpla.safetensors"]
    assert content and content == (root / "scores" / "lpla.safetensors").read_bytes()


def test_snapshots__are_forced_when_asked_for_alone(tmp_path: Path, monkeypatch: Patch) -> None:
    """None of a round costs a forcing; one index forces those since the last."""
    root = tmp_path / "RUN"
    with recorded(root, monkeypatch) as disk:
        store = RecordingWriter(root / "recording")
        for round in (1, 2, 3):
            store.save("main", round, {"w": torch.zeros(2)})
        assert not [path for call, path in disk.calls if call == "fsync" and "models" in path]
        (root / "recording/models/main/0002.safetensors").unlink()
        lines, force = store.lines, store.pending()
        force()
        store.flush()
        assert lines == 3 and len((root / "recording/rounds.jsonl").read_bytes().splitlines()) == 3
    names = {name for name, content in disk.states[LOST][-1].items() if content}
    models = {f"recording/models/main/000{n}.safetensors" for n in (1, 3)}
    assert names == models | {"recording/recording.json", "recording/rounds.jsonl"}


def test_moved_folder__is_whole_wherever_it_is(tmp_path: Path, monkeypatch: Patch) -> None:
    root = tmp_path / "OUT"
    with recorded(root, monkeypatch) as disk:
        for name in ("cells", "unfinished/one/deep"):
            durable.make_folder(root / name)
        (root / "unfinished/one/report.json").write_text("{}")
        (root / "unfinished/one/deep/x").write_text("y")
        durable.move(root / "unfinished/one", root / "cells/one")
    for fate in (LOST, KEPT, DELETED):
        moved = [tree for tree in disk.states[fate] if "cells/one" in tree]
        assert moved and all(tree["cells/one/report.json"] == b"{}" for tree in moved)
        assert all(tree["cells/one/deep/x"] == b"y" for tree in moved)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), FULL),
        (OSError(errno.EROFS, "Read-only", "x"), f"Read-only: {CURES[errno.EROFS]}"),
        (SafetensorError("Error: I/O error: No space .. (os error 28)"), FULL),
        (SafetensorError("Error: header"), "Error: header"),
    ],
)
def test_failed_write__names_file_and_reason_and_leaves_the_file_before(
    error: Exception, why: str, tmp_path: Path
) -> None:
    durable.write({tmp_path / "a": b"old"})
    with (
        pytest.raises(DiskError) as raised,
        durable.explain(hint="go on"),
        durable.replacing(tmp_path / "a") as (partial,),
    ):
        partial.write_bytes(b"half")
        raise error
    assert str(raised.value) == f"cannot write '{tmp_path / 'a'}': {why}; go on"
    assert raised.value.reason == why
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_folder_that_vanished__is_not_made_again(tmp_path: Path) -> None:
    run = tmp_path / "RUN"
    run.mkdir()
    store, scores = RecordingWriter(run / "recording"), Archive(run / "attacks")
    shutil.rmtree(run)
    for write in (
        lambda: store.save("main", 1, {"w": torch.zeros(2)}),
        lambda: scores.save("lpla", {}),
        lambda: write_tensors({"w": torch.zeros(2)}, run / "x.safetensors"),
        lambda: durable.write({run / "report.json": "{}"}),
    ):
        with pytest.raises(DiskError, match="No such file or directory"):
            write()
    assert not run.exists()


def test_file_systems_that_force_no_folder__are_taken_as_they_are(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    fsync = os.fsync

    def refuses(handle: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{handle}")).is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refuses)
    durable.write({tmp_path / "a": b"1"})
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Bad")))
    with pytest.raises(DiskError, match="a': Bad"):
        durable.write({tmp_path / "a": b"2"})
    assert (tmp_path / "a").read_bytes() == b"1"


@pytest.mark.parametrize("code", [*CURES, *WAYS_ROUND])
def test_error_of_the_system__has_its_own_advice_and_goes_on_where_it_can(code: int) -> None:
    """Also through a second `explain`, as of a file in a folder of a command."""
    with (
        pytest.raises(DiskError) as raised,
        durable.explain(hint="the same command goes on"),
        durable.explain("cannot write 'x'"),
    ):
        raise OSError(code, os.strerror(code))
    advice = {**CURES, **WAYS_ROUND}[code]
    text = f"cannot write 'x': {os.strerror(code)}: {advice}"
    assert str(raised.value) == text + "; the same command goes on" * (code in CURES)


def test_files_and_folders__are_their_owners_alone_and_those_of_others_stay(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        tmp_path.chmod(0o755)
        durable.make_folder(tmp_path / "a" / "b")
        durable.make_folder(tmp_path)
        durable.write({tmp_path / "a" / "x": "y"})
        write_tensors({"w": torch.zeros(2)}, tmp_path / "a" / "b" / "w")
        store = RecordingWriter(tmp_path / "recording")
        store.save("main", 1, {"w": torch.zeros(2)})
        store.flush()
    finally:
        os.umask(before)
    rights = {oct(p.stat().st_mode & 0o777) for p in tmp_path.rglob("*") if p.is_file()}
    assert rights == {"0o600"} and tmp_path.stat().st_mode & 0o777 == 0o755
    assert {p.stat().st_mode & 0o777 for p in tmp_path.rglob("*") if p.is_dir()} == {0o700}
