"""Writes a recording while a federation runs; a disk that fails never stops the federation."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import IO

from fedmia.options.errors import InputError
from fedmia.recording.format import (
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
from fedmia.storage import durable
from fedmia.storage.snapshot import write_tensors

Say = Callable[[str], None]


class RecordingWriter:
    """Writes one recording; every method may be called from any thread.

    Models and updates are written at once and not kept in memory.

    Args:
        folder: of the recording: a new or an empty one, readable by its owner alone.
        header: what `recording.json` says.
        say: prints a line to the user.

    Raises:
        InputError: the folder holds something, or cannot be made.

    Attributes:
        failure: why recording ended early; empty while it goes on.
    """

    def __init__(self, folder: Path, header: Header, say: Say) -> None:
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"recording: '{folder}' is not empty; name a new folder")
        self.folder, self.header, self.failure = folder, header, ""
        self._say, self._lock, self._lines = say, Lock(), None
        self._last_model = dict[str, int]()  # round, by branch
        self._with_updates = dict[str, list[int]]()
        try:
            durable.make_folder(folder)
            folder.chmod(0o700)
            durable.write({folder / HEADER: json.dumps(asdict(header), indent=1) + "\n"})
            self._lines: IO[bytes] | None = (folder / ROUNDS).open("ab")
            durable.force(folder)
        except OSError as error:
            raise InputError(f"recording: '{folder}' cannot be made: {error}") from None

    def write_model(self, round: int, state: State, branch: str = MAIN) -> None:
        """Write the global model after a round, and delete the one before it that was kept only
        as the last.

        Args:
            round: 0: before the first, 1, 2, ...
            state: weights by name.
            branch: of the federation.
        """
        path = model_file(self.folder, check_branch(branch), round)

        def write() -> None:
            digest = self._write_tensors(state, path)
            durable.force_all([path])
            self._append(RoundRecord(branch, round, model=digest))
            last, self._last_model[branch] = self._last_model.get(branch, 0), round
            if last % self.header.every and last < round:
                self._append(RoundRecord(branch, last), model="")
                model_file(self.folder, branch, last).unlink()

        self._try(write)

    def write_update(self, round: int, client: int, state: State, branch: str = MAIN) -> str:
        """Write what a client sent; it counts once `end_round` names it.

        Args:
            round: 1, 2, ...
            client: its number.
            state: weights by name.
            branch: of the federation.

        Returns:
            SHA-256 of the file, for `RoundRecord.updates`; empty where it could not be written.
        """
        digests = list[str]()
        path = update_file(self.folder, check_branch(branch), round, client)
        self._try(lambda: digests.append(self._write_tensors(state, path)))
        return digests[0] if digests else ""

    def end_round(self, line: RoundRecord) -> None:
        """Write the line of a round, once its updates are on the disk."""

        def write() -> None:
            files = (update_file(self.folder, line.branch, line.round, c) for c in line.updates)
            durable.force_all(list(files))
            self._append(line)
            self._forget_updates(line)

        self._try(write)

    def close(self) -> None:
        """End the recording; it can be read at any time, before and after."""
        with self._lock:
            if self._lines is not None:
                self._lines.close()
                self._lines = None

    def _forget_updates(self, line: RoundRecord) -> None:
        """Delete the updates of rounds before the last so many."""
        rounds = self._with_updates.setdefault(line.branch, [])
        if line.updates and isinstance(self.header.updates, int):
            rounds.append(line.round)
            while len(rounds) > self.header.updates:
                round = rounds.pop(0)
                self._append(RoundRecord(line.branch, round), updates={})
                shutil.rmtree(update_file(self.folder, line.branch, round, 0).parent)

    def _write_tensors(self, state: State, path: Path) -> str:
        durable.make_folder(path.parent, self.folder)
        write_tensors(state, path, forced=False)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _append(self, line: RoundRecord, **more: object) -> None:
        with self._lock:
            if self._lines is not None:
                self._lines.write(json.dumps(line.to_json() | more).encode() + b"\n")
                self._lines.flush()
                os.fsync(self._lines.fileno())

    def _try(self, write: Callable[[], None]) -> None:
        """Write, unless the disk failed before; where it fails, say so once and go on without."""
        if self.failure:
            return
        try:
            with durable.explain():
                write()
        except OSError as error:
            with self._lock:
                first, self.failure = not self.failure, str(error)
            if first:
                self._say(
                    f"recording to '{self.folder}' ended: {error}; the federation goes on, and "
                    "what was recorded until here can be read"
                )


def describe_size(state: State, clients: int, updates: str | int) -> str:
    """How much a recording writes: `4.2 MB a round for the model, 42 MB for the updates of 10`.

    Args:
        state: the first model.
        clients: number of clients of a round.
        updates: as in `Header`.

    Returns:
        The text.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    text = f"{size / 1e6:.3g} MB a model"
    if updates != "none":
        rounds = "" if updates == "all" else f", kept for the last {updates} rounds"
        text += f", {clients * size / 1e6:.3g} MB a round for the updates of {clients}{rounds}"
    return text
