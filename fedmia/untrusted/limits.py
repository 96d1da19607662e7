"""Files of others: a small file that unfolds to a large one is refused before it does."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.settings.errors import InputError

ROOM = 1 << 28  # bytes that any file may unfold to
TIMES = 20  # its own length, beyond that: images and weights shrink by less
TEXT = 1 << 28  # bytes of a JSON file
LEVELS = 100  # of its lists and mappings in each other: what copies or compares them goes as deep
ROWS = 1024  # of a parquet file that are read at once, and bytes that they may take:
BATCH = 1 << 27  # pyarrow takes five times as many for a moment


def check_unfolded(where: str, size: int, length: int) -> None:
    """Refuse a file that promises far more than it holds.

    Args:
        where: names the file.
        size: bytes that it unfolds to.
        length: bytes that it has.

    Raises:
        InputError: more than 256 MiB, and more than 20 times its length.
    """
    if size > max(ROOM, TIMES * length):
        raise InputError(
            f"{where} unfolds to {size / 2**20:,.0f} MiB from {length / 2**20:,.1f} MiB; at most "
            f"{TIMES} times its length is read (or {ROOM >> 20} MiB)"
        )


def check_zip(where: str, path: Path) -> list[zipfile.ZipInfo]:
    """The members of a zip file, whose directory promises no more than it may unfold to.

    Args:
        where: names the file.
        path: of the file.

    Returns:
        Its members.

    Raises:
        InputError: it promises more, or a member's name leads out of a folder.
        zipfile.BadZipFile: it is none.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    check_unfolded(where, sum(m.file_size for m in members), path.stat().st_size)
    for member in members:
        if member.filename.startswith("/") or ".." in member.filename.split("/"):
            raise InputError(f"{where}: the name '{member.filename}' leads out of the archive")
    return members


def check_array(where: str, file: Any, length: int) -> None:
    """Refuse an array in NumPy's format whose header promises more than the file holds.

    Args:
        where: names the file.
        file: open at the start of the array; read up to its numbers.
        length: bytes from there to the end.

    Raises:
        InputError: it promises more, or holds objects.
        ValueError: it is none.
    """
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"format {version} of NumPy is not read")
    try:
        shape, _, kind = read(file)
    except Exception as error:  # of Python's own parser, which NumPy reads a header by
        raise ValueError(f"no header of NumPy: {error}") from None
    if kind.hasobject:
        raise InputError(
            f"{where} holds Python objects, which may run code; nothing was read. Save numbers or "
            "text: np.stack makes one array of images of one size"
        )
    size = kind.itemsize
    for side in shape:
        size *= side
    if size < 0 or size > length:
        raise InputError(f"{where} promises {shape} of {kind} and holds {length} bytes")


def check_npz(where: str, path: Path) -> None:
    """Refuse an archive of arrays that promise more than its members hold.

    Args:
        where: names the file.
        path: of the file.

    Raises:
        InputError, ValueError, zipfile.BadZipFile: as `check_zip` and `check_array`.
    """
    members = check_zip(where, path)
    with zipfile.ZipFile(path) as archive:
        for member in members:
            with archive.open(member) as file:
                check_array(f"{where}: {member.filename}", file, member.file_size)


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


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Args:
        path: of the file.

    Returns:
        Values as JSON has them.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON, larger than 256 MiB or nested deeper than `LEVELS`.
    """
    if path.stat().st_size > TEXT:
        raise ValueError(f"larger than {TEXT >> 20} MiB")
    return parse_json(read_utf8(path))


def read_utf8(path: Path) -> str:
    """The text of a file, without the mark of its encoding that some programs begin it with.

    Args:
        path: of the file.

    Returns:
        The text, line breaks as they are.

    Raises:
        OSError: it cannot be read.
        ValueError: it is in another encoding.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"is not in UTF-8 (byte {error.start}): save it in that encoding"
        ) from None


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


def check_name(where: str, name: object) -> str:
    """Refuse the name of a file beside another one that leads elsewhere.

    Args:
        where: what names it.
        name: of the file.

    Returns:
        The name.

    Raises:
        InputError: it is no text, or leads out of its folder.
    """
    if not isinstance(name, str) or Path(name).name != name or name in ("", "..") or "\0" in name:
        raise InputError(f"{where} names the file {name!r:.100}, which leads out of its folder")
    return name
