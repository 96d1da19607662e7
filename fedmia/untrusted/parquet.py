"""Parquet files of others: few rows at once, as each may be the largest value in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmia.untrusted.limits import check_unfolded

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1024  # that are read at once, and bytes that they may take:
BATCH = 1 << 27  # pyarrow takes five times as many for a moment
ROW = 256  # bytes of memory that a row takes beside its values


def batch_rows(where: str, metadata: Any, length: int) -> int:
    """How many rows of a parquet file may be read at once: each may be the largest value in it,
    which the file holds once.

    Args:
        where: names the file.
        metadata: of the file, as pyarrow has it.
        length: bytes of the file.

    Returns:
        Rows in 1 to `ROWS`, such that these hold at most `BATCH` bytes.

    Raises:
        InputError: the file unfolds to far more than it holds.
    """
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    check_unfolded(where, sum(group.total_byte_size for group in groups), length)
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    largest = max((column.total_uncompressed_size for column in columns), default=1)
    return max(1, min(ROWS, BATCH // max(largest, 1)))


def read_batches(
    where: str, path: Path, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a parquet file, as many at once as their memory allows.

    Args:
        where: names the file.
        path: of the file.
        columns: to read; None: all.

    Yields:
        Some rows.

    Raises:
        InputError: it unfolds to far more than it holds.
        pa.ArrowException, OSError: it cannot be read.
    """
    import pyarrow.parquet as pq  # takes its time

    size, length = 0, path.stat().st_size
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_rows(where, file.metadata, length), columns=columns):
            size += batch.nbytes + ROW * batch.num_rows
            check_unfolded(where, size, length)
            yield batch


def read_schema(path: Path) -> tuple[pa.Schema, int]:
    """The columns of a parquet file and the number of its rows; none of them is read.

    Args:
        path: of the file.

    Returns:
        The schema, with what pandas says of it, and the rows.

    Raises:
        pa.ArrowException, OSError: it cannot be read.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    return metadata.schema.to_arrow_schema(), metadata.num_rows
