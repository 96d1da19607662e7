"""The recording of a run of fedmia's own: written as rounds pass, read when they are scored."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from fedmia.recording.format import (
    HEADER,
    MAIN,
    ROUNDS,
    Header,
    RoundRecord,
    model_file,
    notes_file,
    update_file,
)
from fedmia.recording.reader import StateMap, index_rounds
from fedmia.ssl.base import State
from fedmia.storage import durable
from fedmia.storage.snapshot import Snapshot, write_tensors

CONTROLS = ("zero", "placebo")  # branches that only scoring needs
FORKS = "forks"  # updates of a round that will be replayed: no line names them


class RunRecording:
    """Models and updates of a run by branch and round, with what the attacker's client held.

    What is written is read at once. It is forced to the disk, and named in `rounds.jsonl`, when a
    checkpoint or a report counts on it: the run can be gone on with from any such moment.

    Args:
        folder: of the recording, in one that is there; of a run to go on with, or to be scored.

    Attributes:
        header: what `recording.json` says of a new recording.
    """

    def __init__(self, folder: Path, header: Header | None = None) -> None:
        self.folder, self.header = folder, header or Header(every=0)
        lines = (folder / ROUNDS).read_bytes().splitlines() if (folder / ROUNDS).is_file() else []
        self._lines, self._files = lines, list[Path]()
        self._on_disk = len(lines)
        self._records = index_rounds(map(json.loads, lines))

    # -- writing -------------------------------------------------------------------------------

    def save(self, branch: str, snapshot: Snapshot) -> None:
        """Write the global model after a round, and what the attacker's client held then."""
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
        text = json.dumps(line.to_json()).encode()
        self._lines.append(text)
        index_rounds([json.loads(text)], self._records)

    def pending(self) -> tuple[int, Callable[[], None]]:
        """What is not forced to the disk yet.

        Returns:
            The number of all lines, to go back to by `rewind`; and what forces those that are new,
            with the files that they name. Another thread may call it.
        """
        force = partial(self._force, self._files, self._lines[self._on_disk :])
        self._files, self._on_disk = [], len(self._lines)
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
        durable.make_folder(path.parent, self.folder.parent)
        write_tensors(tensors, path, forced=False)
        self._files.append(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _force(self, files: Iterable[Path], lines: list[bytes]) -> None:
        if not (self.folder / HEADER).is_file():
            durable.make_folder(self.folder, self.folder.parent)
            self.folder.chmod(0o700)
            header = json.dumps(asdict(self.header), indent=1) + "\n"
            durable.write({self.folder / HEADER: header})
        durable.force_all([file for file in files if file.is_file()])  # some were dropped since
        with (self.folder / ROUNDS).open("ab") as file:
            file.writelines(line + b"\n" for line in lines)
        durable.force_all([self.folder / ROUNDS])

    def _rewrite(self, lines: list[bytes]) -> None:
        self._lines, self._files, self._on_disk = lines, [], len(lines)
        self._records = index_rounds(map(json.loads, lines))
        if self.folder.is_dir():
            durable.write({self.folder / ROUNDS: b"".join(line + b"\n" for line in lines)})
        named = {
            file
            for branch, rounds in self._records.items()
            for one in rounds.values()
            for file in (
                *[model_file(self.folder, branch, one.round)] * bool(one.model),
                *[notes_file(self.folder, branch, one.round)] * bool(one.notes),
                *(update_file(self.folder, branch, one.round, c) for c in one.updates),
            )
        }
        for file in [*self.folder.rglob("*.safetensors")]:
            if file not in named:
                file.unlink()
        for path in sorted(self.folder.rglob("*"), reverse=True):  # those within come first
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    # -- reading -------------------------------------------------------------------------------

    def rounds(self, branch: str) -> list[int]:
        """Rounds whose model was kept, in order."""
        return sorted(r for r, one in self._records.get(branch, {}).items() if one.model)

    def models(self, branch: str, rounds: Iterable[int]) -> StateMap:
        """The global models after some of the rounds that were kept.

        Args:
            branch: of the run.
            rounds: whose models are meant.

        Returns:
            Round -> weights.
        """
        records, wanted = self._records.get(branch, {}), set(rounds)
        return StateMap(
            {r: (model_file(self.folder, branch, r), records[r].model)
             for r in self.rounds(branch) if r in wanted}
        )  # fmt: skip

    def before(self, branch: str, rounds: Iterable[int]) -> StateMap:
        """Round -> the global weights that its clients received, those of the round before it."""
        records = self._records.get(branch, {})
        return StateMap(
            {r: (model_file(self.folder, branch, r - 1), records[r - 1].model)
             for r in rounds}
        )  # fmt: skip

    def load(self, branch: str, round: int) -> Snapshot:
        """The model after a round, with what the attacker's client held.

        Args:
            branch: of the run.
            round: that was kept.
        """
        state, notes = self.models(branch, [round])[round], State()
        if digest := self._records[branch][round].notes:
            path = notes_file(self.folder, branch, round)
            notes = StateMap({round: (path, digest)})[round]
        return Snapshot(round, state, notes)

    def untrained(self) -> Snapshot:
        """The run's first model, before any training."""
        return self.load("untrained" if self.rounds("untrained") else MAIN, 0)

    def updates(self, branch: str) -> dict[int, StateMap]:
        """Round -> client -> the weights that it sent, of rounds whose updates are kept."""
        return {
            r: self.update_files(branch, r, one.updates)
            for r, one in sorted(self._records.get(branch, {}).items()) if one.updates
        }  # fmt: skip

    def update_files(self, branch: str, round: int, digests: dict[int, str]) -> StateMap:
        """Client -> the weights that it sent in a round, whose digests `save_update` returned."""
        files = {c: (update_file(self.folder, branch, round, c), d) for c, d in digests.items()}
        return StateMap(dict(sorted(files.items())))
