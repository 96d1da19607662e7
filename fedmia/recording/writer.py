"""Writes a recording while a federation runs; a disk that fails never stops the federation."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock, RLock

from fedmia.options.errors import InputError
from fedmia.recording.files import digest_of, write_header, write_lines, write_state
from fedmia.recording.format import (
    MAIN,
    Header,
    RoundRecord,
    check_branch,
    model_file,
    update_file,
)
from fedmia.ssl.base import State
from fedmia.storage import durable

LINES = 2  # of a round: its updates and what it made
Say = Callable[[str], None]


class RecordingWriter:
    """Writes one recording; every method may be called from any thread.

    A thread writes models and updates, forces them to the disk and writes the line that names them,
    while the federation goes on, by at most one round. One model or update waits at most: the next
    comes once it is written.

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
        self._sent = dict[tuple[str, int], list[int]]()  # clients, by branch and round
        self._with_updates = dict[str, list[int]]()
        self._thread = ThreadPoolExecutor(1, "recording")
        self._forcing = deque[Future[None]]()  # at most the lines of one round
        self._writing: Future[None] | None = None
        try:
            self._write_header(header)
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

        def write_line() -> None:
            self._append(RoundRecord(branch, round, model=digest_of(path)))
            last, self._last_model[branch] = self._last_model.get(branch, 0), round
            if last % self.header.every and last < round:
                self._append(RoundRecord(branch, last), model="")
                model_file(self.folder, branch, last).unlink()

        self._write(path, state)
        self._behind(write_line)

    def write_update(self, round: int, client: int, state: State, branch: str = MAIN) -> None:
        """Write what a client sent; it counts once `end_round` named it.

        Args:
            round: 1, 2, ...
            client: its number.
            state: weights by name.
            branch: of the federation.
        """
        self._write(update_file(self.folder, check_branch(branch), round, client), state)
        self._sent.setdefault((branch, round), []).append(client)

    def end_round(self, line: RoundRecord) -> None:
        """Write the line of a round, with the updates that came; it must not change then."""
        branch, round = line.branch, line.round
        sent = self._sent.pop((branch, round), [])

        def write_line() -> None:
            files = {c: update_file(self.folder, branch, round, c) for c in sent}
            self._append(replace(line, updates={c: digest_of(f) for c, f in files.items()}))
            if sent and isinstance(self.header.updates, int):
                self._forget_updates(branch, round, self.header.updates)

        self._behind(write_line)

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

    def _forget_updates(self, branch: str, round: int, number: int) -> None:
        """Delete the updates of rounds before the last so many."""
        rounds = self._with_updates.setdefault(branch, [])
        rounds.append(round)
        while len(rounds) > number:
            round = rounds.pop(0)
            self._append(RoundRecord(branch, round), updates={})
            shutil.rmtree(update_file(self.folder, branch, round, 0).parent)

    def _write_header(self, header: Header) -> None:
        self.header = header
        write_header(self.folder, header)

    def _append(self, line: RoundRecord, **more: object) -> None:
        write_lines(self.folder, [line.to_line(**more)])

    def _write(self, path: Path, state: State) -> None:
        """Write a file in the thread; its tensors must not change then."""
        with self._lock:
            if self._writing is not None:
                self._writing.result()
            if not self.failure:
                task = partial(write_state, self.folder, path, state)
                self._writing = self._thread.submit(self._try, task)

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
