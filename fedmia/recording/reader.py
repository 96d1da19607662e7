"""Reads a recording: models by round, updates by round and client, who took part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedmia.options.bounded import parse_json
from fedmia.options.errors import InputError
from fedmia.options.filetype import check_file_type
from fedmia.recording.format import (
    FORMAT,
    HEADER,
    MAIN,
    ROUNDS,
    Header,
    RoundRecord,
    check_branch,
    model_file,
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
        self.header = self._read_header()
        rounds = index_rounds(self._lines())
        self.rounds = {
            branch: dict(sorted(by_round.items())) for branch, by_round in rounds.items()
        }

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

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Every whole line; one that was being written when the process died is left out."""
        path = self.folder / ROUNDS
        try:
            lines = path.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise InputError(f"'{path}' cannot be read: {error.strerror}") from None
        for number, line in enumerate(lines, start=1):
            try:
                values = json.loads(line)
                yield {**values, "branch": values["branch"], "round": values["round"]}
            except (ValueError, TypeError, KeyError):
                raise InputError(f"'{path}', line {number}: not a round") from None

    def models(self, branch: str = MAIN) -> StateMap:
        """The global models that were kept, by round."""
        return StateMap(
            {r: (model_file(self.folder, branch, r), one.model)
             for r, one in self.rounds.get(branch, {}).items() if one.model},
            self.header.names,
        )  # fmt: skip

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
    """
    rounds = {} if rounds is None else rounds
    for line in lines:
        branch, round = check_branch(str(line["branch"])), int(line["round"])
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

    def only(self, numbers: Iterable[int]) -> StateMap:
        """The same, of some numbers alone."""
        return StateMap({number: self._files[number] for number in numbers}, self._names)

    def __getitem__(self, number: int) -> State:
        path, digest = self._files[number]
        try:
            with path.open("rb") as file:
                right = hashlib.file_digest(file, "sha256").hexdigest() == digest
        except OSError as error:
            raise InputError(f"'{path}' cannot be read: {error.strerror}") from None
        if not right:
            check_file_type(path)
            raise InputError(f"'{path}' is not the file that was recorded: another SHA-256")
        state = read_tensors(path)[0]
        return state if self._names else {n: state[n] for n in sorted(state, key=int)}

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
