"""Reads a recording: models by round, updates by round and client, who took part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from fedmia.recording.attacker import read_attacker
from fedmia.recording.branches import MAIN
from fedmia.recording.files import check_digest
from fedmia.recording.format import (
    FORMAT,
    HEADER,
    ROUNDS,
    Header,
    index_rounds,
    round_file,
    update_file,
)
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage import manifest
from fedmia.storage.snapshot import read_tensors
from fedmia.storage.states import ReadLate, States
from fedmia.untrusted.limits import unreadable
from fedmia.untrusted.text import read_json


class RecordedRounds:
    """What the lines of a recording name; in a folder without any, nothing.

    Args:
        folder: of the recording; one that still grows is read as far as it came.
        names: whether tensors bear names.

    Raises:
        InputError: a line is damaged.

    Attributes:
        records: what is known of each round, by branch and round.
    """

    def __init__(self, folder: Path, names: bool = True) -> None:
        self.folder, self._names = folder, names
        self._lines = read_lines(folder)
        self.records = index_rounds(folder, self._lines)

    def rounds(self, branch: str = MAIN) -> list[int]:
        """Rounds whose model was kept, in order."""
        return [*self.models(branch)]

    def models(self, branch: str = MAIN) -> States:
        """The global models that were kept, by round."""
        return read_states(self._files("model", branch), self._names)

    def held(self, branch: str = MAIN) -> States:
        """What the attacker's client of a run of fedmia held beside the model, by round."""
        return self.tensors("held", branch)

    def tensors(self, kind: str, branch: str = MAIN) -> States:
        """The tensors of the files of a kind, by round; each is read when it is asked for.

        Args:
            kind: one of `fedmia.recording.format.FOLDERS`.
            branch: of the federation.

        Returns:
            Round -> tensors by name.
        """
        return read_states(self._files(kind, branch))

    def load(self, branch: str, round: int) -> tuple[State, State]:
        """The model after a round, and what the attacker's client held.

        Args:
            branch: of the federation.
            round: that was kept.

        Returns:
            Weights by name, and tensors by name.
        """
        return self.models(branch)[round], self.held(branch).get(round, {})

    def untrained(self) -> State:
        """The first model, before any training."""
        return self.models("untrained" if self.rounds("untrained") else MAIN)[0]

    def before(self, branch: str, rounds: Iterable[int]) -> States:
        """The global weights that clients received in a round, those of the round before it.

        Args:
            branch: of the federation.
            rounds: 1, 2, ...; those before them were kept.

        Returns:
            Round -> weights.
        """
        models = self.models(branch)
        return States(rounds, lambda round: models[round - 1])

    def notes(self, branch: str = MAIN) -> ReadLate[tuple[State, Any]]:
        """What an attacker inside read of its targets: tensors, and values beside them, by round.

        Its items raise:
            InputError: the file is damaged, or another than was recorded.
        """
        files = self._files("notes", branch)

        def read(round: int) -> tuple[State, Any]:
            path, digest = files[round]
            check_digest(path, digest)
            tensors, about = read_tensors(path)
            if any(tensor.dtype != torch.float64 for tensor in tensors.values()):
                raise InputError(f"'{path}' holds no notes of an attacker: they are float64")
            return tensors, about

        return ReadLate(files, read)

    def attacker(self) -> tuple[list[bytes], dict[str, Any]] | None:
        """Who attacked from inside: SHA-256 of each target, and facts; None: nobody did.

        Raises:
            InputError: the file is damaged, or another than was recorded.
        """
        digest = read_header(self.folder).attacker
        return read_attacker(self.folder, digest) if digest else None

    def _files(self, kind: str, branch: str) -> dict[int, tuple[Path, str]]:
        """Path and SHA-256 of what is kept of one kind, by round in order."""
        digests = {r: getattr(one, kind) for r, one in sorted(self.records.get(branch, {}).items())}
        return {r: (round_file(self.folder, kind, branch, r), d) for r, d in digests.items() if d}

    def updates(self, branch: str = MAIN) -> dict[int, States]:
        """The updates that were kept: round -> client -> the weights that it sent."""
        return {
            r: self.update_files(branch, r, one.updates)
            for r, one in sorted(self.records.get(branch, {}).items())
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
        records: what is known of each round, by branch and round, in their order.
    """

    def __init__(self, folder: Path) -> None:
        self.header = read_header(folder)
        super().__init__(folder, self.header.names)
        for branch, by_round in self.records.items():
            self.records[branch] = dict(sorted(by_round.items()))

    @property
    def named_by(self) -> str:
        """`roster` where every client bears the number of its partition, else `nodes`."""
        every = {one.named_by for rounds in self.records.values() for one in rounds.values()}
        return "nodes" if "nodes" in every else "roster"

    def clients(self, branch: str = MAIN) -> list[int]:
        """Every client that took part, ascending."""
        return sorted({c for one in self.records.get(branch, {}).values() for c in one.cohort})


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
    if not path.exists():
        inside = folder / manifest.RECORDING
        hint = f"; that of this run is '{inside}'" * (inside / HEADER).exists()
        raise InputError(f"'{folder}' is no recording: it has no {HEADER}{hint}")
    with unreadable(f"'{path}' cannot be read"):
        values: Any = read_json(path)
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
