"""The folder of `--out`, for both commands."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fedmia.options.errors import InputError
from fedmia.storage.manifest import FORMAT
from fedmia.storage.outfolder import OutFolder


def begun(folder: Path, **tree: object) -> OutFolder:
    out_folder = OutFolder(folder, "another")
    out_folder.begin(tree)
    return out_folder


def test_occupied__what_is_new_or_empty_or_ours_passes(tmp_path: Path) -> None:
    OutFolder(tmp_path / "new" / "RUN", "another")
    OutFolder(tmp_path, "another")
    begun(tmp_path / "RUN", seed=1)
    calls: list[Path] = []
    OutFolder(tmp_path / "RUN", "another", lambda config: not calls.append(config))
    assert calls == [tmp_path / "RUN" / "config.yaml"]


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
    blocked = OutFolder(tmp_path / "b", "another")
    (tmp_path / "b" / "config.yaml").mkdir()
    for make, out, why in (
        (lambda: blocked.begin({}), tmp_path / "b", "Is a directory"),
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
    kept.give_up()
    assert {p.name for p in (tmp_path / "RUN").iterdir()} == {"config.yaml", "recording"}
    (tmp_path / "empty").mkdir()
    begun(tmp_path / "empty").give_up()
    assert list((tmp_path / "empty").iterdir()) == []
