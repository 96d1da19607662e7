"""Text of others: UTF-8 of bounded length, lines of CSV, and JSON as deep as a copy may go."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

TEXT = 1 << 28  # bytes of a file
LEVELS = 100  # of lists and mappings in each other: what copies or compares them goes as deep


def read_utf8(path: Path) -> str:
    """The text of a file, without the mark of its encoding that some programs begin it with.

    Args:
        path: of the file.

    Returns:
        The text, line breaks as they are.

    Raises:
        OSError: it cannot be read.
        ValueError: it is in another encoding, or larger than 256 MiB.
    """
    if path.stat().st_size > TEXT:
        raise ValueError(f"larger than {TEXT >> 20} MiB")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"is not in UTF-8 (byte {error.start}): save it in that encoding"
        ) from None


def read_csv(path: Path) -> list[list[str]]:
    """The lines of a CSV file, those without a cell left out.

    Args:
        path: of the file.

    Returns:
        The cells of each line, the header's first.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text, or no CSV.
    """
    try:
        return [row for row in csv.reader(io.StringIO(read_utf8(path), newline="")) if row]
    except csv.Error as error:
        raise ValueError(f"is no CSV: {error}") from None


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Args:
        path: of the file.

    Returns:
        Values as JSON has them.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text, no JSON or nested deeper than `LEVELS`.
    """
    return parse_json(read_utf8(path))


def parse_json(text: str | bytes) -> Any:
    """The values that JSON of others stands for.

    Args:
        text: of bounded length.

    Returns:
        Values as JSON has them.

    Raises:
        ValueError: it is no JSON, or nested deeper than `LEVELS`.
    """
    deep = ValueError(f"nested deeper than {LEVELS} levels")
    try:
        content = json.loads(text)
    except RecursionError:
        raise deep from None
    level = [content]
    for _ in range(LEVELS + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return content
        level = [v for one in level for v in (one.values() if isinstance(one, dict) else one)]
    raise deep
