"""What promises more than it holds is refused before it is read."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedmia.settings.errors import InputError
from fedmia.settings.yamlfile import load
from fedmia.untrusted import limits
from fedmia.untrusted.limits import (
    LEVELS,
    ROOM,
    ROWS,
    TIMES,
    batch_rows,
    check_array,
    check_unfolded,
    check_zip,
    parse_json,
)


def test_unfolded__the_larger_of_both_bounds() -> None:
    check_unfolded("f", ROOM, 1)
    check_unfolded("f", TIMES * ROOM, ROOM)
    with pytest.raises(InputError, match="^f unfolds to 256 MiB from 0.0 MiB"):
        check_unfolded("f", ROOM + 1, 1)
    with pytest.raises(InputError, match="at most 20 times"):
        check_unfolded("f", TIMES * ROOM + 1, ROOM)


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a": ', "}")])
def test_json__values_that_a_copy_of_them_could_not_hold_are_refused(
    opened: str, closed: str
) -> None:
    def nested(levels: int) -> str:
        return f"[1, {opened * (levels - 1)}2{closed * (levels - 1)}]"

    assert parse_json("3") == 3 and parse_json(nested(LEVELS))[0] == 1
    for levels in (LEVELS + 1, 100_000):
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            parse_json(nested(levels))


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_zip__names_that_lead_out(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(InputError, match="leads out of the archive"):
        check_zip("a", path)


def test_array__honest_ones_of_any_shape_pass_and_one_byte_less_does_not() -> None:
    for array in (np.zeros(()), np.zeros((0, 3)), np.zeros((3, 4), np.uint8), np.array(["a"])):
        file = io.BytesIO()
        np.save(file, array)
        file.seek(0)
        check_array("a", file, len(file.getvalue()))
    file.seek(0)
    with pytest.raises(InputError, match="promises"):
        check_array("a", file, array.nbytes - 1)


def test_rows__fewer_are_read_at_once_where_a_value_may_be_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"image": [bytes(1000), b"x"]}), path := tmp_path / "a.parquet")
    metadata = pq.read_metadata(path)
    largest = metadata.row_group(0).column(0).total_uncompressed_size
    assert batch_rows("f", metadata, 999) == ROWS
    monkeypatch.setattr(limits, "BATCH", 7 * largest)
    assert batch_rows("f", metadata, 999) == 7


def test_yaml__an_alias_counts_as_what_it_stands_for(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\n")
    assert load(path) == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 7)]
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"a.yaml: not valid YAML: more than 100,000 values"):
        load(path)
    path.write_text("a: &a [*a]")
    with pytest.raises(InputError, match="more than"):
        load(path)
