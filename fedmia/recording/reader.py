"""Reads a recording: models by round, updates by round and client, who took part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedmia.options.bounded import parse_json
from fedmia.options.errors import InputError
from fedmia.recording.format import (
    FORMAT,
    HEADER,
    MAIN,
    ROUNDS,
    Header,
    RoundRecord,
    check_branch,
    model_file,
    notes_file,
    update_file,
)
from fedmia.ssl.base import State
from fedmia.storage.snapshot import read_tensors


class Recording:
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
        self.folder = folder
        self.header, self.rounds = self._read_header(), self._read_rounds()

    def _read_header(self) -> Header:
        path = self.folder / HEADER
        try:
            values: Any = parse_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"'{self.folder}' is no recording: it has no {HEADER}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"'{path}' cannot be read: {error}") from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            version = values.get("format") if isinstance(values, dict) else None
            raise InputError(f"'{path}' is of format {version}; this fedmia reads format {FORMAT}")
        return Header(**{f.name: values[f.name] for f in fields(Header) if f.name in values})

    def _read_rounds(self) -> dict[str, dict[int, RoundRecord]]:
        """Of whole lines; one that was being written when the process died is left out."""
        path, rounds = self.folder / ROUNDS, dict[str, dict[int, RoundRecord]]()
        try:
            lines = path.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise InputError(f"'{path}' cannot be read: {error.strerror}") from None
        for number, line in enumerate(lines, start=1):
            try:
                index_rounds([json.loads(line)], rounds)
            except (ValueError, TypeError, KeyError):
                raise InputError(f"'{path}', line {number}: not a round") from None
        return {branch: dict(sorted(by_round.items())) for branch, by_round in rounds.items()}

    def models(self, branch: str = MAIN) -> StateMap:
        """The global models that were kept, by round."""
        return self._states(branch, "model", model_file)

    def notes(self, branch: str = MAIN) -> StateMap:
        """What the attacker's client of a run of fedmia held beside the model, by round."""
        return self._states(branch, "notes", notes_file)

    def _states(self, branch: str, name: str, file: Callable[..., Path]) -> StateMap:
        digests = {r: getattr(one, name) for r, one in self.rounds.get(branch, {}).items()}
        files = {r: (file(self.folder, branch, r), d) for r, d in digests.items() if d}
        return StateMap(files, self.header.names)

    def updates(self, branch: str = MAIN) -> dict[int, StateMap]:
        """The updates that were kept: round -> client -> the weights that it sent."""
        return {
            r: StateMap(
                {c: (update_file(self.folder, branch, r, c), digest)
                 for c, digest in sorted(one.updates.items())},
                self.header.names,
            )
            for r, one in self.rounds.get(branch, {}).items() if one.updates
        }  # fmt: skip

    @property
    def named_by(self) -> str:
        """`roster` where every client bears the number of its partition, else `nodes`."""
        every = {one.named_by for rounds in self.rounds.values() for one in rounds.values()}
        return "nodes" if "nodes" in every else "roster"

    def clients(self, branch: str = MAIN) -> list[int]:
        """Every client that took part, ascending."""
        return sorted({c for one in self.rounds.get(branch, {}).values() for c in one.cohort})


def index_rounds(
    lines: Iterable[dict[str, Any]], rounds: dict[str, dict[int, RoundRecord]] | None = None
) -> dict[str, dict[int, RoundRecord]]:
    """What lines say of each round, by branch and round.

    Args:
        lines: of `rounds.jsonl`.
        rounds: what was known before, to be completed.

    Returns:
        The rounds, as they come.

    Raises:
        KeyError, TypeError, ValueError: a line that is no round.
    """
    rounds = {} if rounds is None else rounds
    for line in lines:
        branch, round = check_branch(line["branch"]), line["round"]
        record = rounds.setdefault(branch, {}).setdefault(round, RoundRecord(branch, round))
        record.add(line)
    return rounds


class StateMap(Mapping[int, State]):
    """States on disk by number: each is read, and compared with its SHA-256, when it is asked for.

    Args:
        files: path and SHA-256 by number.
        names: whether tensors bear names; else they come in their order, which no file keeps.
    """

    def __init__(self, files: Mapping[int, tuple[Path, str]], names: bool = True) -> None:
        self._files, self._names = files, names

    def __getitem__(self, number: int) -> State:
        path, digest = self._files[number]
        try:
            with path.open("rb") as file:
                right = hashlib.file_digest(file, "sha256").hexdigest() == digest
        except OSError as error:
            raise InputError(f"'{path}' cannot be read: {error.strerror}") from None
        if not right:
            raise InputError(f"'{path}' is not the file that was recorded: another SHA-256")
        state = read_tensors(path)[0]
        return state if self._names else {n: state[n] for n in sorted(state, key=int)}

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
