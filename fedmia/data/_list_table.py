"""A table of a list of images, from CSV, TSV, text or Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmia.settings.errors import InputError
from fedmia.settings.values import escape_name
from fedmia.untrusted.parquet import read_batches, read_schema
from fedmia.untrusted.text import read_table

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")


def read_list(path: Path) -> tuple[list[str], list[int], dict[str, list[str]], str]:
    """The table of a list.

    Args:
        path: of the file, whose suffix says what it is.

    Returns:
        Names of the columns, number of each line, values by column, and what separates them.

    Raises:
        InputError: a file of another suffix.
        OSError: it cannot be read.
        ValueError: it is damaged, or no table with a header.
    """
    if path.suffix.lower() not in SUFFIXES:
        way_out = ": save the table as CSV in UTF-8" * path.suffix.lower().startswith(".xls")
        raise InputError(f"list: {path} is no {', '.join(SUFFIXES)}{way_out}")
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    lines, separator = read_table(path)
    if len(lines) < 2:
        raise ValueError(f"has {len(lines)} lines; it needs a header and a line an image")
    (_, head), *rows = lines
    header = [" ".join(escape_name(name).split()) for name in head]
    long = [(at, row) for at, row in rows if any(row[len(header) :])]
    if long:
        at, row = long[0]
        raise ValueError(f"line {at} has {len(row)} cells, the header {len(header)}")
    _refuse_twins(header)
    table = {
        name: [escape_name(row[place]) if place < len(row) else "" for _, row in rows]
        for place, name in enumerate(header)
        if name
    }
    return [*table], [at for at, _ in rows], table, separator


def _read_parquet(path: Path) -> tuple[list[str], list[int], dict[str, list[str]], str]:
    import pyarrow as pa

    schema, count = read_schema(path)
    plain = [f.name for f in schema if not pa.types.is_nested(f.type) and not _is_bytes(f.type)]
    table: dict[str, list[str]] = {escape_name(name): [] for name in plain}
    _refuse_twins([escape_name(name) for name in schema.names])
    if not count:
        raise ValueError("has no rows")
    for batch in read_batches(f"list: {path}", path, plain):
        for name in plain:
            table[escape_name(name)] += map(_as_text, batch.column(name).to_pylist())
    return [*table], [*range(1, count + 1)], table, ""


def _refuse_twins(header: Sequence[str]) -> None:
    twins = [name for name, count in Counter(header).items() if count > 1 and name]
    if twins:
        raise ValueError(f"two columns are called '{twins[0]}'")


def _as_text(value: Any) -> str:
    """A value of a parquet file as a cell of a table has it."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return escape_name(str(value).strip())


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
