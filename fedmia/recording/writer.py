"""Writes a recording as rounds pass; what is written is read at once, and can be taken back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedmia.data.cast import Cast
from fedmia.recording.attacker import write_attacker
from fedmia.recording.branches import BRANCHES, MAIN
from fedmia.recording.cast import write_cast
from fedmia.recording.files import write_header, write_lines, write_state
from fedmia.recording.format import (
    ATTACKER,
    CAST,
    FOLDERS,
    HEADER,
    ROUNDS,
    Header,
    RecordedRound,
    check_branch,
    index_rounds,
    named_files,
    round_file,
    update_file,
)
from fedmia.recording.reader import RecordedRounds, read_header
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.storage import durable
from fedmia.untrusted.text import parse_json

FORKS = "forks"  # updates of a round that will be replayed: no line names them


class RecordingWriter(RecordedRounds):
    """Writes one recording, from one thread at a time; goes on where the folder holds lines.

    What is written is read at once. It is forced to the disk, and named in `rounds.jsonl`, when
    something counts on it (`flush`, or a checkpoint by `pending`): it can be gone on with from any
    such moment. A header that says so has models and updates of older rounds deleted.

    Args:
        folder: of the recording, in one that is there by the first write.
        header: what `recording.json` says; one that is there stands.
        cast: the images of a run in their roles, written when the recording begins; None, or one
            without images: no such file is written.

    Raises:
        InputError: what is there is damaged.

    Attributes:
        header: what `recording.json` says, or will say.
    """

    def __init__(
        self, folder: Path, header: Header | None = None, cast: Cast | None = None
    ) -> None:
        self._begun = (folder / HEADER).is_file()
        self.header = read_header(folder) if self._begun else header or Header()
        self._cast = cast if cast is not None and len(cast.used) else None
        super().__init__(folder, self.header.names)
        self._on_disk, self._gone = len(self._lines), list[Path]()

    def begin(self) -> None:
        """Make the folder, with what the header says and the cast; the first write does it too.

        Raises:
            DiskError: they cannot be written.
        """
        if self._begun:
            return
        durable.make_folder(self.folder, self.folder.parent)
        if self._cast is not None:
            self.header = replace(self.header, cast=write_cast(self.folder, self._cast))
        write_header(self.folder, self.header, self.folder.parent)
        self._begun = True

    def describe(self, **values: Any) -> None:
        """Say in `recording.json` what was not known when recording began.

        Args:
            values: of `Header`, by name.
        """
        self.begin()
        self.header = replace(self.header, **values)
        self._names = self.header.names
        write_header(self.folder, self.header, self.folder.parent)

    def describe_attacker(self, targets: Sequence[bytes], about: Mapping[str, Any]) -> None:
        """Write who attacks which images from inside, once.

        Args:
            targets: SHA-256 of the shape and bytes of each image under attack.
            about: values by the names of `ATTACKER_ABOUT`.
        """
        self.begin()
        if not self.header.attacker:
            self.describe(attacker=write_attacker(self.folder, targets, about))

    def save(self, branch: str, round: int, state: State, held: State | None = None) -> None:
        """Write the global model after a round, and what the attacker's client held then.

        Args:
            branch: of the federation.
            round: 0: before the first, 1, 2, ...
            state: weights by name.
            held: tensors of the attacker's client, such as its queue; none: no file is written.
        """
        line = RecordedRound(branch, round)
        line.model = self.save_file("model", branch, round, state)
        if held:
            line.held = self.save_file("held", branch, round, held)
        self.add(line)

    def save_update(self, branch: str, round: int, client: int, state: State) -> str:
        """Write what a client sent; it counts once the line of its round names it.

        Args:
            branch: of the federation.
            round: 1, 2, ...
            client: its number.
            state: the weights that it sent.

        Returns:
            SHA-256 of the file, for `RecordedRound.updates`.
        """
        return self._write(update_file(self.folder, check_branch(branch), round, client), state)

    def save_file(
        self, kind: str, branch: str, round: int, tensors: State, about: object = None
    ) -> str:
        """Write a file of a round; it counts once the line of its round names it.

        Args:
            kind: one of `fedmia.recording.format.FOLDERS`.
            branch: of the federation.
            round: 0: before the first, 1, 2, ...
            tensors: by name.
            about: values beside them; what JSON can hold.

        Returns:
            SHA-256 of the file, for the field `kind` of `RecordedRound`.
        """
        path = round_file(self.folder, kind, check_branch(branch), round)
        return self._write(path, tensors, about)

    def record_file(
        self, kind: str, branch: str, round: int, tensors: State, about: object = None
    ) -> None:
        """Write a file of a round, in place of one before it, and the line that names it. A kill in
        between loses the one before, and damages nothing.

        Args:
            kind, branch, round, tensors, about: as of `save_file`.
        """
        record = self.records.get(branch, {}).get(round)
        if record is not None and getattr(record, kind):
            self._append(RecordedRound(branch, round), **{kind: ""})
            self.flush()
        line = RecordedRound(branch, round)
        setattr(line, kind, self.save_file(kind, branch, round, tensors, about))
        self.add(line)

    def add(self, line: RecordedRound) -> None:
        """Add a line of a round to those before; files that are no longer kept then are deleted
        once that is on the disk."""
        self._append(line)
        by_round, every, updates = self.records[line.branch], self.header.every, self.header.updates
        if line.model and every:
            for round in [r for r, one in by_round.items() if one.model and r % every]:
                if round < line.round:  # it was kept as the last alone
                    self._forget(RecordedRound(line.branch, round), model="")
        if line.updates and isinstance(updates, int):
            for round in sorted(r for r, one in by_round.items() if one.updates)[:-updates]:
                self._forget(RecordedRound(line.branch, round), updates={})

    @property
    def lines(self) -> int:
        """How many lines there are, to go back to by `rewind`."""
        return len(self._lines)

    def pending(self) -> Callable[[], None]:
        """What is not forced to the disk yet.

        Returns:
            What forces the lines that are new, with the files that they name. Another thread may
            call it.
        """
        force = partial(self._force, self._lines[self._on_disk :], self._gone)
        self._on_disk, self._gone = len(self._lines), []
        return force

    def flush(self) -> None:
        """Have all lines on the disk, with the files that they name.

        Raises:
            DiskError: they cannot be written.
        """
        self.pending()()

    def rewind(self, lines: int) -> None:
        """Go back to the first so many lines; files that they do not name are deleted."""
        self._rewrite(self._lines[:lines])

    def drop_controls(self) -> None:
        """Delete the branches beside `main` that clients trained for scoring alone, but for an
        attacker's notes of them."""
        lines = list[bytes]()
        for line in self._lines:
            values = parse_json(line)
            branch = BRANCHES.get(values["branch"])
            if branch is None or values["branch"] == MAIN or not branch.trains:
                lines.append(line)
            elif "notes" in values:
                gone = {*FOLDERS, "updates"} - {"notes"}
                rest = {n: v for n, v in values.items() if n not in gone}
                lines.append(json.dumps(rest).encode() + b"\n")
        self._rewrite(lines)

    def drop_updates(self, branch: str, round: int) -> None:
        """Delete the updates of a round that did not end, or that was replayed."""
        shutil.rmtree(update_file(self.folder, branch, round, 0).parent, ignore_errors=True)

    def _write(self, path: Path, tensors: State, about: object = None) -> str:
        self.begin()
        return write_state(self.folder, path, tensors, about)

    def _append(self, line: RecordedRound, **more: object) -> None:
        self._lines.append(line.to_line(**more))
        index_rounds(self.folder, self._lines[-1:], self.records)

    def _forget(self, line: RecordedRound, **what: object) -> None:
        """Add a line that says what of a round is no longer kept."""
        before = {*self.records[line.branch][line.round].files(self.folder)}
        self._append(line, **what)
        self._gone += before.difference(self.records[line.branch][line.round].files(self.folder))

    def _force(self, lines: Sequence[bytes], gone: Sequence[Path]) -> None:
        write_lines(self.folder, lines)
        for path in gone:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # it holds more
                path.parent.rmdir()

    def _rewrite(self, lines: list[bytes]) -> None:
        self._lines, self._on_disk, self._gone = lines, len(lines), []
        self.records = index_rounds(self.folder, lines)
        if self.folder.is_dir():
            durable.write({self.folder / ROUNDS: b"".join(lines)})
        whole = [
            *(self.folder / name for name in (CAST, ATTACKER)),
            *named_files(self.folder, lines),
        ]
        for file in {*self.folder.rglob("*.safetensors")}.difference(whole):
            file.unlink()
        for path in sorted(self.folder.rglob("*"), reverse=True):  # those within come first
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def begin_recording(folder: Path, header: Header) -> RecordingWriter:
    """Begin a recording in a folder of its own.

    Args:
        folder: a new or an empty one; it is readable by its owner alone.
        header: what `recording.json` says.

    Returns:
        Its writer.

    Raises:
        InputError: the folder holds something, or cannot be made.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"recording: '{folder}' is not empty; name a new folder")
    try:
        durable.make_folder(folder)
        writer = RecordingWriter(folder, header)
        writer.begin()
    except OSError as error:
        raise InputError(f"recording: '{folder}' cannot be made: {error}") from None
    return writer


def describe_size(state: State, updates: str | int) -> str:
    """How much a recording writes: `42 MB a model, and as much for each update`.

    Args:
        state: the first model.
        updates: as in `Header`.

    Returns:
        The text.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    text = f"{size / 1e6:.3g} MB a model"
    if updates != "none":
        text += ", and as much for each client's update"
        text += "" if updates == "all" else f", of the last {updates} rounds"
    return text
