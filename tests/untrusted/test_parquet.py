"""Few rows of a parquet file at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedmia.encoders.vectors import read_vectors
from fedmia.settings.errors import InputError
from fedmia.untrusted import limits, parquet
from fedmia.untrusted.parquet import ROWS, batch_rows, read_batches


def test_rows__fewer_are_read_at_once_where_a_value_may_be_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"image": [bytes(1000), b"x"]}), path := tmp_path / "a.parquet")
    metadata = pq.read_metadata(path)
    largest = metadata.row_group(0).column(0).total_uncompressed_size
    assert batch_rows("f", metadata, 999) == ROWS
    monkeypatch.setattr(parquet, "BATCH", 7 * largest)
    assert batch_rows("f", metadata, 999) == 7


def test_batches__of_few_bytes_that_stand_for_many_rows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = pa.array([0.5, 1.5] * (1 << 16), pa.float32())
    others = pa.array([2.5] * (1 << 17), pa.float32())
    pq.write_table(pa.table({"a": numbers, "b": others}), path := tmp_path / "a.parquet")
    assert sum(batch.num_rows for batch in read_batches("f", path)) == 1 << 17
    assert read_vectors(path, "f").vectors.shape == (1 << 17, 1, 2)
    monkeypatch.setattr(limits, "ROOM", 1 << 20)
    for read in (lambda: [*read_batches("f", path)], lambda: read_vectors(path, "f")):
        with pytest.raises(InputError, match="^f unfolds to"):
            read()
