"""The folder of `--out`, for both commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmia.errors import InputError
from fedmia.runtime.outfolder import make, refuse_occupied


def test_refuse_occupied__what_is_new_or_empty_or_ours_passes(tmp_path: Path) -> None:
    refuse_occupied(tmp_path / "new" / "RUN", "another")
    refuse_occupied(tmp_path, "another")
    make(tmp_path / "RUN", "seed: 1")
    asked: list[Path] = []
    refuse_occupied(tmp_path / "RUN", "another", lambda config: not asked.append(config))
    assert asked == [tmp_path / "RUN" / "config.yaml"]


def test_refuse_occupied__names_what_is_there(tmp_path: Path) -> None:
    make(tmp_path / "RUN", "seed: 1")
    (tmp_path / "RUN" / "a.txt").write_text("mine")
    for out, said in (
        (tmp_path / "RUN", "already holds another; name a new folder"),
        (tmp_path, "already holds 'RUN'; name a new folder"),
        (tmp_path / "RUN" / "a.txt", "is a file"),
    ):
        with pytest.raises(InputError) as error:
            refuse_occupied(out, "another")
        assert str(error.value) == f"--out '{out}' {said}"


def test_make__says_in_one_line_what_stands_in_the_way(tmp_path: Path) -> None:
    make(tmp_path / "a" / "RUN", "é: 1")
    assert (tmp_path / "a" / "RUN" / "config.yaml").read_text(encoding="utf-8") == "é: 1"
    (tmp_path / "b" / "config.yaml").mkdir(parents=True)
    for out, why in ((tmp_path / "b", "Is a directory"), (
        tmp_path / "a" / "RUN" / "config.yaml" / "RUN", "Not a directory",
    )):  # fmt: skip
        with pytest.raises(InputError) as error:
            make(out, "seed: 1")
        assert str(error.value) == f"--out '{out}' cannot be made: {why}"
