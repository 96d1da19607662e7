"""The folder of `--out`, for both commands."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmia.settings.errors import InputError
from fedmia.storage.durable import WAYS_ROUND
from fedmia.storage.manifest import FORMAT, LOCK
from fedmia.storage.outfolder import NO_LOCKS, OutFolder, locked

IN_ITS_PLACE = WAYS_ROUND[errno.EISDIR]


def begun(folder: Path, **tree: object) -> OutFolder:
    out_folder = OutFolder(folder, "another")
    out_folder.begin(tree)
    return out_folder


def test_occupied__what_is_new_or_empty_or_ours_passes(tmp_path: Path) -> None:
    OutFolder(tmp_path / "new" / "RUN", "another")
    OutFolder(tmp_path, "another")
    begun(tmp_path / "RUN", seed=1)
    calls: list[Path] = []
    OutFolder(tmp_path / "RUN", "another", lambda folder: not calls.append(folder))
    assert calls == [tmp_path / "RUN"]


def test_occupied__names_what_is_there(tmp_path: Path) -> None:
    begun(tmp_path / "RUN", seed=1)
    (tmp_path / "RUN" / "a.txt").write_text("mine")
    for out, message in (
        (tmp_path / "RUN", "already holds another; name a new folder"),
        (tmp_path, "already holds 'RUN'; name a new folder"),
        (tmp_path / "RUN" / "a.txt", "is a file"),
    ):
        with pytest.raises(InputError) as error:
            OutFolder(out, "another")
        assert str(error.value) == f"out (--out) '{out}' {message}"


def test_begin__writes_the_settings_and_where_they_were_run(tmp_path: Path) -> None:
    begun(tmp_path / "a" / "RUN", name="é")
    text = (tmp_path / "a" / "RUN" / "config.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    about = content.pop("_run")
    assert content["name"] == "é" and about.pop("format") == FORMAT
    assert set(about) == {"versions", "hardware", "commit"}


def test_begin__says_in_one_line_what_stands_in_the_way(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "b").mkdir()
    blocked = OutFolder(tmp_path / "b", "another", lambda config: True)
    (tmp_path / "b" / "config.yaml").mkdir()
    for make, out, why in (
        (lambda: blocked.begin({}), tmp_path / "b", f"Is a directory: {IN_ITS_PLACE}"),
        (lambda: OutFolder(file / "RUN", "another"), file / "RUN", f"'{file}' is no folder"),
    ):
        with pytest.raises(InputError) as error:
            make()
        assert str(error.value) == f"out (--out) '{out}' cannot be made: {why}"


def test_give_up__leaves_nothing_that_was_not_there_before(tmp_path: Path) -> None:
    begun(tmp_path / "new" / "RUN").give_up()
    assert list(tmp_path.iterdir()) == []
    kept = begun(tmp_path / "RUN")
    (tmp_path / "RUN" / "recording").mkdir()
    with kept:
        kept.give_up()
    assert {p.name for p in (tmp_path / "RUN").iterdir()} == {"config.yaml", "recording"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(KeyboardInterrupt), begun(tmp_path / "empty"):
        raise KeyboardInterrupt
    assert list((tmp_path / "empty").iterdir()) == []


def test_locked__a_second_command_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    out = tmp_path / "RUN"
    second = OutFolder(out, "another")
    with OutFolder(out, "another") as first:
        first.begin({"seed": 1})
        for refused in (lambda: second.begin({}), lambda: OutFolder(out, "another")):
            with pytest.raises(InputError) as error:
                refused()
            assert str(error.value) == (
                f"out (--out) '{out}': another command is at work in it "
                f"(process {os.getpid()} on {platform.node()})"
            )
    assert yaml.safe_load((out / "config.yaml").read_text())["seed"] == 1
    with pytest.raises(InputError, match="already holds another; name a new folder"), second:
        second.begin({})  # it saw a new folder when it began
    assert [p.name for p in out.iterdir()] == ["config.yaml"]


def test_locked__what_a_killed_command_leaves_is_in_nobodys_way(tmp_path: Path) -> None:
    work = f"""
import os, signal
from pathlib import Path
from fedmia.storage.outfolder import locked
with locked(Path({str(tmp_path)!r}), "out"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", work], check=False)
    assert killed.returncode == -signal.SIGKILL and (tmp_path / LOCK).exists()
    OutFolder(tmp_path, "another").begin({})
    with locked(tmp_path / "..", "out"):
        pass
    assert not (tmp_path.parent / LOCK).exists()


@pytest.mark.parametrize("code", NO_LOCKS)
def test_locked__a_file_system_without_locks_keeps_nobody_out_and_says_so(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with OutFolder(tmp_path / "RUN", "another") as place:
        place.begin({})
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and f"'{tmp_path / 'RUN'}'" in err and "no locks" in err
    assert [p.name for p in (tmp_path / "RUN").iterdir()] == ["config.yaml"]


def test_too_long_a_name__is_bad_input_with_advice_that_works(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=WAYS_ROUND[errno.ENAMETOOLONG]):
        OutFolder(tmp_path / ("x" * 300), "another")
