"""Writes the files of a recording: what a line names is on the disk before the line is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedmia.recording.format import HEADER, ROUNDS, Header, named_files
from fedmia.ssl.base import State
from fedmia.storage import durable
from fedmia.storage.snapshot import write_tensors


def write_header(folder: Path, header: Header, within: Path | None = None) -> None:
    """Make the folder of a recording, and say what it holds.

    Args:
        folder: of the recording.
        header: what `recording.json` says.
        within: a folder above it that must be there.
    """
    values = asdict(header)
    if not header.cast:  # of a federation of others nothing is said of one
        del values["cast"]
    durable.make_folder(folder, within)
    durable.write({folder / HEADER: json.dumps(values, indent=1) + "\n"})


def write_state(folder: Path, path: Path, state: State) -> None:
    """Write a model or an update whole; it is on the disk once a line names it.

    Args:
        folder: of the recording, which is there.
        path: of the file.
        state: weights by name.
    """
    durable.make_folder(path.parent, folder, forced=False)
    write_tensors(state, path, forced=False)


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_lines(folder: Path, lines: Sequence[bytes]) -> None:
    """Have lines on the disk, and before them the files that they name.

    Args:
        folder: of the recording.
        lines: of `rounds.jsonl`.
    """
    files = named_files(folder, lines)
    folders = {above for file in files for above in file.parents if folder in above.parents}
    durable.force_all([*files, *folders])
    durable.make_file(folder / ROUNDS)
    with (folder / ROUNDS).open("ab") as file:
        file.writelines(lines)
    durable.force_all([folder / ROUNDS])
