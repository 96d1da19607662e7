"""Results as files: the table as `table.parquet` and `table.csv`, and `curves.npz`."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.records import Curves
from fedmia.settings.errors import InputError
from fedmia.storage import durable
from fedmia.storage.manifest import TABLE, TABLE_TEXT
from fedmia.table import COLUMNS, Row
from fedmia.untrusted.arrays import open_npz
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.parquet import read_batches, read_schema


def write(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the table as table.parquet and table.csv.

    Args:
        rows: the numbers.
        folder: to write into.

    Returns:
        Paths of the two files.

    Raises:
        DiskError: they cannot be written.
    """
    files = {folder / name: content for name, content in contents(rows).items()}
    durable.write(files)
    return [*files]


def contents(rows: Sequence[Row]) -> dict[str, bytes]:
    """What table.parquet and table.csv hold; the CSV file is empty where nothing applies.

    Args:
        rows: the numbers.

    Returns:
        Name of the file -> bytes.
    """
    import pyarrow as pa  # takes its time, and a command without a folder needs none
    import pyarrow.parquet as pq

    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, (kind, _) in COLUMNS.items()])
    table = pa.Table.from_pylist(list(rows), schema=schema)
    parquet, text = io.BytesIO(), io.StringIO(newline="")
    pq.write_table(table, parquet)
    lines = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)
    return {TABLE: parquet.getvalue(), TABLE_TEXT: text.getvalue().encode()}


def read(path: Path) -> list[Row]:
    """The rows of a table.parquet, or of the one that lies in a folder.

    Args:
        path: of the file or of the folder.

    Returns:
        The rows.

    Raises:
        InputError: it is no such table, or unfolds to far more than it holds.
    """
    file = path / TABLE if path.is_dir() else path
    with unreadable(f"cannot read {file}"):
        columns = read_schema(file)[0].names
        for name in COLUMNS:
            if name not in columns:
                raise InputError(f"{file} is no table of a run: it has no column '{name}'")
        return [row for batch in read_batches(str(file), file) for row in batch.to_pylist()]


def to_npz(curves: Curves) -> bytes:
    """Every array of `curves` under its field's name, those that are None left out; losses in
    float32. The same curves give the same bytes."""
    by_field = {f.name: getattr(curves, f.name) for f in dataclasses.fields(curves)}
    arrays: dict[str, Any] = {n: np.asarray(v) for n, v in by_field.items() if v is not None}
    arrays = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    return data.getvalue()


def from_npz(file: Path) -> Curves:
    """The curves that `to_npz` wrote."""
    with open_npz(str(file), file) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return Curves(act=str(arrays.pop("act")), **arrays)
