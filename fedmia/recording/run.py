"""The recording of a run of fedmia's own: written as rounds pass, read when they are scored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedmia import __version__
from fedmia.data.cast import Cast
from fedmia.recording.cast import write_cast
from fedmia.recording.files import digest_of, write_header, write_lines, write_state
from fedmia.recording.format import (
    CAST,
    HEADER,
    MAIN,
    ROUNDS,
    Header,
    RoundRecord,
    index_rounds,
    model_file,
    named_files,
    notes_file,
    update_file,
)
from fedmia.recording.reader import RecordedRounds, read_lines
from fedmia.ssl.base import State
from fedmia.storage import durable
from fedmia.storage.snapshot import Snapshot
from fedmia.storage.states import States

CONTROLS = ("zero", "placebo")  # branches that only scoring needs
FORKS = "forks"  # updates of a round that will be replayed: no line names them


class RunRecording(RecordedRounds):
    """Models and updates of a run by branch and round, with what the attacker's client held.

    What is written is read at once. It is forced to the disk, and named in `rounds.jsonl`, when a
    checkpoint or a report counts on it: the run can be gone on with from any such moment.

    Args:
        folder: of the recording, in one that is there; of a run to go on with, or to be scored.
        strategy: that trains it; empty of a run that is over.
        cast: the images of the run in their roles, written when the recording begins; None, or one
            without images: no such file is written.
    """

    def __init__(self, folder: Path, strategy: str = "", cast: Cast | None = None) -> None:
        self._made_by = {"fedmia": __version__, "strategy": strategy}
        self._cast = cast if cast is not None and len(cast.used) else None
        self._lines = read_lines(folder)
        self._on_disk = len(self._lines)
        super().__init__(folder, self._lines)

    # -- writing -------------------------------------------------------------------------------

    def save(self, branch: str, snapshot: Snapshot) -> None:
        """Write the global model after a round, and what the attacker's client held then.

        Args:
            branch: of the run.
            snapshot: of both.
        """
        round = snapshot.round
        line = RoundRecord(branch, round)
        line.model = self._write(snapshot.state, model_file(self.folder, branch, round))
        if snapshot.holder:
            line.notes = self._write(snapshot.holder, notes_file(self.folder, branch, round))
        self.add(line)

    def save_update(self, branch: str, round: int, client: int, state: State) -> str:
        """Write what a client sent; it counts once the line of its round names it.

        Args:
            branch: of the run.
            round: 1, 2, ...
            client: partition id.
            state: the weights that it sent.

        Returns:
            SHA-256 of the file, for `RoundRecord.updates`.
        """
        return self._write(state, update_file(self.folder, branch, round, client))

    def add(self, line: RoundRecord) -> None:
        """Add a line of a round to those before."""
        self._lines.append(line.to_line())
        index_rounds(self.folder, self._lines[-1:], self._records)

    def pending(self) -> tuple[int, Callable[[], None]]:
        """What is not forced to the disk yet.

        Returns:
            The number of all lines, to go back to by `rewind`; and what forces those that are new,
            with the files that they name. Another thread may call it.
        """
        force = partial(write_lines, self.folder, self._lines[self._on_disk :])
        self._on_disk = len(self._lines)
        return len(self._lines), force

    def rewind(self, lines: int) -> None:
        """Go back to the first so many lines; files that they do not name are deleted."""
        self._rewrite(self._lines[:lines])

    def drop_controls(self) -> None:
        """Delete the branches beside `main` that only scoring needs."""
        self._rewrite([line for line in self._lines if json.loads(line)["branch"] not in CONTROLS])

    def drop_updates(self, branch: str, round: int) -> None:
        """Delete the updates of a round that did not end, or that was replayed."""
        shutil.rmtree(update_file(self.folder, branch, round, 0).parent, ignore_errors=True)

    def _write(self, tensors: State, path: Path) -> str:
        if not (self.folder / HEADER).is_file():
            header = Header(self._made_by, every=0)
            if self._cast is not None:
                durable.make_folder(self.folder, self.folder.parent)
                header = replace(header, cast=write_cast(self.folder, self._cast))
            write_header(self.folder, header, self.folder.parent)
        write_state(self.folder, path, tensors)
        return digest_of(path)

    def _rewrite(self, lines: list[bytes]) -> None:
        self._lines, self._on_disk = lines, len(lines)
        self._records = index_rounds(self.folder, lines)
        if self.folder.is_dir():
            durable.write({self.folder / ROUNDS: b"".join(lines)})
        files = self.folder.rglob("*.safetensors")
        whole = [self.folder / CAST, *named_files(self.folder, lines)]
        for file in {*files}.difference(whole):
            file.unlink()
        for path in sorted(self.folder.rglob("*"), reverse=True):  # those within come first
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    # -- reading -------------------------------------------------------------------------------

    def rounds(self, branch: str) -> list[int]:
        """Rounds whose model was kept, in order."""
        return [*self.models(branch)]

    def before(self, branch: str, rounds: Iterable[int]) -> States:
        """The global weights that clients received in a round, those of the round before it.

        Args:
            branch: of the run.
            rounds: 1, 2, ...; those before them were kept.

        Returns:
            Round -> weights.
        """
        models = self.models(branch)
        return States(rounds, lambda round: models[round - 1])

    def load(self, branch: str, round: int) -> Snapshot:
        """The model after a round, with what the attacker's client held.

        Args:
            branch: of the run.
            round: that was kept.

        Returns:
            Weights, and what it held.
        """
        notes = self.notes(branch)
        return Snapshot(round, self.models(branch)[round], notes.get(round, {}))

    def untrained(self) -> Snapshot:
        """The run's first model, before any training."""
        return self.load("untrained" if self.rounds("untrained") else MAIN, 0)
