"""Text of others: UTF-8 of bounded length, lines of CSV, and JSON as deep as a copy may go."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

TEXT = 1 << 28  # bytes of a file
SEPARATORS = ",;\t"  # of the cells of a line; the likeliest first
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
    content = path.read_bytes()
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError("is in UTF-16, as of 'Unicode text': save it in UTF-8")
    try:
        return content.decode("utf-8-sig")
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


def read_table(path: Path) -> tuple[list[tuple[int, list[str]]], str]:
    """The lines of a table as spreadsheets write it, those without a value left out.

    Args:
        path: of the file.

    Returns:
        The number of each line, from 1, and its cells, the header's first; and what separates the
        cells: of `SEPARATORS` the one that gives the first line the most, or what a first line
        `sep=;` names.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text, or no CSV.
    """
    text, before = read_utf8(path), 0
    first, _, rest = text.lstrip("\r\n").partition("\n")
    declaration = first.strip("\r\n ")[4:] if first[:4].lower() == "sep=" else ""
    if declaration:
        before, text = text.count("\n") - rest.count("\n"), rest
    try:
        counts = {one: len(next(csv.reader([first], delimiter=one), [])) for one in SEPARATORS}
        separator = declaration or max(counts, key=lambda one: counts[one])
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        lines = [(before + reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except (csv.Error, TypeError) as error:  # a separator of two characters is a TypeError
        raise ValueError(f"is no CSV: {error}") from None
    return [(at, row) for at, row in lines if any(row)], separator


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
