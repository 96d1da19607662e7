"""Reads a recording: models by round, updates by round and client, who took part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedmia.options.bounded import parse_json
from fedmia.options.errors import InputError
from fedmia.options.filetype import check_file_type
from fedmia.recording.files import digest_of
from fedmia.recording.format import (
    FORMAT,
    HEADER,
    MAIN,
    ROUNDS,
    Header,
    index_rounds,
    model_file,
    notes_file,
    update_file,
)
from fedmia.ssl.base import State
from fedmia.storage.snapshot import read_tensors
from fedmia.storage.states import States


class RecordedRounds:
    """What the lines of a recording name.

    Args:
        folder: of the recording.
        lines: of its `rounds.jsonl`, whole ones.
        names: whether tensors bear names.

    Raises:
        InputError: a line is damaged.
    """

    def __init__(self, folder: Path, lines: Iterable[bytes], names: bool = True) -> None:
        self.folder, self._names = folder, names
        self._records = index_rounds(folder, lines)

    def models(self, branch: str = MAIN) -> States:
        """The global models that were kept, by round."""
        return self._states(branch, "model", model_file)

    def notes(self, branch: str = MAIN) -> States:
        """What the attacker's client of a run of fedmia held beside the model, by round."""
        return self._states(branch, "notes", notes_file)

    def _states(self, branch: str, name: str, file: Callable[..., Path]) -> States:
        digests = {r: getattr(one, name) for r, one in self._records.get(branch, {}).items()}
        files = {r: (file(self.folder, branch, r), d) for r, d in sorted(digests.items()) if d}
        return read_states(files, self._names)

    def updates(self, branch: str = MAIN) -> dict[int, States]:
        """The updates that were kept: round -> client -> the weights that it sent."""
        return {
            r: self.update_files(branch, r, one.updates)
            for r, one in sorted(self._records.get(branch, {}).items())
            if one.updates
        }

    def update_files(self, branch: str, round: int, digests: dict[int, str]) -> States:
        """Client -> the weights that it sent in a round, by the digests of their files."""
        files = {c: (update_file(self.folder, branch, round, c), d) for c, d in digests.items()}
        return read_states(dict(sorted(files.items())), self._names)


class Recording(RecordedRounds):
    """A recording, also of a federation that still runs or was killed: its whole lines count.

    Args:
        folder: of the recording.

    Raises:
        InputError: there is no recording, of another format, or a damaged one.

    Attributes:
        header: what `recording.json` says.
        rounds: what is known of each round, by branch and round, in their order.
    """

    def __init__(self, folder: Path) -> None:
        self.header = read_header(folder)
        super().__init__(folder, read_lines(folder), self.header.names)
        self.rounds = self._records = {
            branch: dict(sorted(by_round.items())) for branch, by_round in self._records.items()
        }

    @property
    def named_by(self) -> str:
        """`roster` where every client bears the number of its partition, else `nodes`."""
        every = {one.named_by for rounds in self.rounds.values() for one in rounds.values()}
        return "nodes" if "nodes" in every else "roster"

    def clients(self, branch: str = MAIN) -> list[int]:
        """Every client that took part, ascending."""
        return sorted({c for one in self.rounds.get(branch, {}).values() for c in one.cohort})


def read_header(folder: Path) -> Header:
    """What `recording.json` says.

    Args:
        folder: of the recording.

    Returns:
        Its values.

    Raises:
        InputError: there is no recording, one of another format, or it cannot be read.
    """
    path = folder / HEADER
    try:
        values: Any = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"'{folder}' is no recording: it has no {HEADER}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read: {error}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        version = values.get("format") if isinstance(values, dict) else None
        raise InputError(f"'{path}' is of format {version}; this fedmia reads format {FORMAT}")
    return Header(**{f.name: values[f.name] for f in fields(Header) if f.name in values})


def read_lines(folder: Path) -> list[bytes]:
    """Whole lines of `rounds.jsonl`: one that was being written when its process died is left out.

    Args:
        folder: of the recording; one that has no line yet may lack the file.

    Raises:
        InputError: it cannot be read.
    """
    path = folder / ROUNDS
    try:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror}") from None
    return [line for line in lines if line.endswith(b"\n")]


def read_states(files: Mapping[int, tuple[Path, str]], names: bool = True) -> States:
    """States on disk, each compared with its SHA-256 when it is read for the first time.

    Args:
        files: path and SHA-256 by number.
        names: whether tensors bear names; else they come in their order, which no file keeps.

    Returns:
        The states by number.
    """
    whole = set[int]()

    def read(number: int) -> State:
        path, digest = files[number]
        if number not in whole:
            check_digest(path, digest)
            whole.add(number)
        state = read_tensors(path)[0]
        return state if names else {n: state[n] for n in sorted(state, key=int)}

    return States(files, read)


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
