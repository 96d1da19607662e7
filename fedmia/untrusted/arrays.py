"""Arrays of others in NumPy's format: no larger than their file, and never objects."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from fedmia.settings.errors import InputError
from fedmia.untrusted.archives import check_zip

# NumPy reads a header by Python's parser, of which two threads disturb each other before 3.12: a
# sound file fails now and then (CPython issue 106905).
PARSER = Lock()


def read_npy(where: str, source: Path | bytes) -> NDArray[Any]:
    """The array in NumPy's format.

    Args:
        where: names it.
        source: path of a file, or what one holds.

    Returns:
        The array.

    Raises:
        InputError: as `check_array`.
        OSError: the file cannot be read.
        ValueError: it is none.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        length = file.seek(0, io.SEEK_END)
        file.seek(0)
        check_array(where, file, length)
        file.seek(0)
        with PARSER:
            array: NDArray[Any] = np.load(file, allow_pickle=False)
    return array


@contextmanager
def open_npz(where: str, path: Path) -> Iterator[NpzFile]:
    """An archive of arrays, none of which promises more than it holds; each is read when it is
    asked for.

    Args:
        where: names the file.
        path: of the file.

    Yields:
        Arrays by name.

    Raises:
        InputError: as `check_zip` and `check_array`.
        ValueError: it is no archive of arrays. A damaged one raises what its parts raise.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError("not an archive of arrays")
    members = check_zip(where, path)
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for member in members:
            with archive.open(member) as array:
                check_array(f"{where}: {member.filename}", array, member.file_size)
        yield NpzFile(file, allow_pickle=False)


def is_npy(head: bytes) -> bool:
    """Whether a file with these first bytes is an array in NumPy's format."""
    return head.startswith(np.lib.format.MAGIC_PREFIX)


def check_array(where: str, file: IO[bytes], length: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Refuse an array in NumPy's format whose header promises more than the file holds.

    Args:
        where: names the file.
        file: open at the start of the array; read up to its numbers.
        length: bytes from there to the end.

    Returns:
        Its shape and the type of its numbers.

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
        with PARSER:
            shape, _, kind = read(file)
    except Exception as error:  # of Python's own parser, which NumPy reads a header by
        raise ValueError(f"no header of NumPy: {error}") from None
    if kind.hasobject:
        raise InputError(
            f"{where} holds Python objects, which may run code; nothing was read. Save numbers or "
            "text: .astype(str) makes one array of ids, np.stack of images of one size"
        )
    size = kind.itemsize
    for side in shape:
        size *= side
    if size < 0 or size > length:
        raise InputError(f"{where} promises {shape} of {kind} and holds {length} bytes")
    return shape, kind
