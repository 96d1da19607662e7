"""Writes the files of a recording: what a line names is on the disk before the line is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedmia.recording.format import HEADER, ROUNDS, Header, named_files
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage import durable
from fedmia.storage.snapshot import write_tensors
from fedmia.untrusted.filetype import check_file_type


def write_header(folder: Path, header: Header, within: Path | None = None) -> None:
    """Make the folder of a recording, and say what it holds.

    Args:
        folder: of the recording.
        header: what `recording.json` says.
        within: a folder above it that must be there.
    """
    values = asdict(header)
    for name in ("cast", "attacker"):  # of what is not there nothing is said
        if not values[name]:
            del values[name]
    durable.make_folder(folder, within)
    durable.write({folder / HEADER: json.dumps(values, indent=1) + "\n"})


def write_state(folder: Path, path: Path, state: State, about: object = None) -> str:
    """Write tensors whole; they are on the disk once a line names them.

    Args:
        folder: of the recording, which is there.
        path: of the file.
        state: tensors by name.
        about: kept beside them; what JSON can hold.

    Returns:
        SHA-256 of the file.
    """
    durable.make_folder(path.parent, folder, forced=False)
    write_tensors(state, path, about, forced=False)
    return digest_of(path)


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_digest(path: Path, digest: str) -> None:
    """Refuse a file of another SHA-256.

    Args:
        path: of the file.
        digest: its SHA-256 when it was recorded.

    Raises:
        InputError: it is another file than was recorded, or cannot be read.
    """
    try:
        right = digest_of(path) == digest
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror}") from None
    if not right:
        check_file_type(path)
        raise InputError(f"'{path}' is not the file that was recorded: another SHA-256")


def write_lines(folder: Path, lines: Sequence[bytes]) -> None:
    """Have lines on the disk, and before them the files that they name.

    A line that was being written when its process died gives way to the first.

    Args:
        folder: of the recording.
        lines: of `rounds.jsonl`.
    """
    files = named_files(folder, lines)
    folders = {above for file in files for above in file.parents if folder in above.parents}
    durable.force_all([*files, *folders])
    durable.make_file(folder / ROUNDS)
    with (folder / ROUNDS).open("r+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.seek(0, os.SEEK_END)
        file.writelines(lines)
    durable.force_all([folder / ROUNDS])
