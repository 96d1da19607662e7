"""Few rows of a parquet file at once: each may be the largest value, which the file holds once."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedmia.settings.errors import InputError
from fedmia.untrusted.parquet import BATCH, ROWS, batch_rows


def repeated(rows: int, value: bytes, groups: int = 1) -> Any:
    """Metadata of a file that holds a value once, and says it so often."""
    places, file = pa.array(np.zeros(rows, np.int32)), io.BytesIO()
    table = pa.table({"image": pa.DictionaryArray.from_arrays(places, pa.array([value]))})
    pq.write_table(table, file, store_schema=False, row_group_size=-(-rows // groups))
    return pq.ParquetFile(file).metadata


def test_rows__as_many_at_once_as_their_memory_allows() -> None:
    assert batch_rows("file", repeated(5000, b"x"), 1000) == ROWS
    for groups in (1, 2):
        rows = batch_rows("file", repeated(4000, bytes(1 << 20), groups), 1 << 20)
        assert 100 < rows <= BATCH >> 20  # each may be the largest


def test_file__that_unfolds_to_far_more_than_it_holds_is_refused() -> None:
    metadata = repeated(300, bytes(1 << 20), 300)
    assert batch_rows("file", metadata, 16 << 20) == BATCH // (
        metadata.row_group(0).column(0).total_uncompressed_size
    )
    with pytest.raises(InputError, match="^file unfolds to 300 MiB"):
        batch_rows("file", metadata, 1000)
