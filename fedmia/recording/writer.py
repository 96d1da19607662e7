"""Writes a recording while a federation runs; a disk that fails never stops the federation."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock, RLock

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

LINES = 2  # of a round: its updates and what it made
Say = Callable[[str], None]


class RecordingWriter:
    """Writes one recording; every method may be called from any thread.

    Models and updates are written at once and not kept in memory. A thread forces them to the disk
    and writes the line that names them, while the federation goes on, by at most one round.

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
        self.folder, self.failure = folder, ""
        self._say, self._lock, self._failing = say, RLock(), Lock()
        self._last_model = dict[str, int]()  # round, by branch
        self._with_updates = dict[str, list[int]]()
        self._thread = ThreadPoolExecutor(1, "recording")
        self._forcing = deque[Future[None]]()  # at most the lines of one round
        try:
            durable.make_folder(folder)
            folder.chmod(0o700)
            self._write_header(header)
            self._lines = (folder / ROUNDS).open("ab")
            durable.force(folder)
        except OSError as error:
            raise InputError(f"recording: '{folder}' cannot be made: {error}") from None

    def replace_header(self, header: Header) -> None:
        """Say something else in `recording.json`: what was not known when recording began."""
        self._try(lambda: self._write_header(header))

    def write_model(self, round: int, state: State, branch: str = MAIN) -> None:
        """Write the global model after a round, and delete the one before it that was kept only
        as the last.

        Args:
            round: 0: before the first, 1, 2, ...
            state: weights by name.
            branch: of the federation.
        """
        path = model_file(self.folder, check_branch(branch), round)

        def force(digest: str) -> None:
            durable.force_all([path])
            self._append(RoundRecord(branch, round, model=digest))
            last, self._last_model[branch] = self._last_model.get(branch, 0), round
            if last % self.header.every and last < round:
                self._append(RoundRecord(branch, last), model="")
                model_file(self.folder, branch, last).unlink()

        if digest := self._write_tensors(state, path):
            self._behind(lambda: force(digest))

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
        path = update_file(self.folder, check_branch(branch), round, client)
        return self._write_tensors(state, path)

    def end_round(self, line: RoundRecord) -> None:
        """Write the line of a round, once its updates are on the disk; it must not change then."""

        def force() -> None:
            files = (update_file(self.folder, line.branch, line.round, c) for c in line.updates)
            durable.force_all(list(files))
            self._append(line)
            self._forget_updates(line)

        self._behind(force)

    def wait(self) -> None:
        """Wait until all that was written so far is on the disk, with its lines."""
        with self._lock:
            while self._forcing:
                self._forcing.popleft().result()

    def close(self, why: str = "it was closed") -> None:
        """End the recording, once all is on the disk; it can be read at any time.

        Args:
            why: it ends, for `failure`.
        """
        self.wait()
        self.failure = self.failure or why
        self._thread.shutdown()
        self._lines.close()

    def _forget_updates(self, line: RoundRecord) -> None:
        """Delete the updates of rounds before the last so many."""
        rounds = self._with_updates.setdefault(line.branch, [])
        if line.updates and isinstance(self.header.updates, int):
            rounds.append(line.round)
            while len(rounds) > self.header.updates:
                round = rounds.pop(0)
                self._append(RoundRecord(line.branch, round), updates={})
                shutil.rmtree(update_file(self.folder, line.branch, round, 0).parent)

    def _write_header(self, header: Header) -> None:
        self.header = header
        durable.write({self.folder / HEADER: json.dumps(asdict(header), indent=1) + "\n"})

    def _write_tensors(self, state: State, path: Path) -> str:
        """SHA-256 of the file; empty where it could not be written."""
        digests = list[str]()

        def write() -> None:
            durable.make_folder(path.parent, self.folder)
            write_tensors(state, path, forced=False)
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())

        self._try(write)
        return digests[0] if digests else ""

    def _append(self, line: RoundRecord, **more: object) -> None:
        self._lines.write(json.dumps(line.to_json() | more).encode() + b"\n")
        self._lines.flush()
        os.fsync(self._lines.fileno())

    def _behind(self, force: Callable[[], None]) -> None:
        """Run in the thread, after what it was told before."""
        with self._lock:
            if len(self._forcing) == LINES:
                self._forcing.popleft().result()
            if not self.failure:
                self._forcing.append(self._thread.submit(self._try, force))

    def _try(self, write: Callable[[], None]) -> None:
        """Write, unless the disk failed before; where it fails, say so once and go on without."""
        if self.failure:
            return
        try:
            with durable.explain():
                write()
        except OSError as error:
            with self._failing:
                first, self.failure = not self.failure, self.failure or str(error)
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
