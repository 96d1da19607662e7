"""What the federation leaves behind: updates in flight, snapshots and client state on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import load_file, save_file

from fedmia.ssl.base import State


@dataclass(frozen=True)
class Update:
    """One client's reply in one round.

    Attributes:
        client: partition id. round: 1, 2, ... over the whole run.
        state: the shared weights that it sent. examples: images it trained on.
        metrics: numbers of its training and defence.
    """

    client: int
    round: int
    state: State
    examples: int
    metrics: dict[str, float]


@dataclass
class LocalState:
    """What one client keeps between rounds: tensors, and a JSON-able memory."""

    tensors: State = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)


class StateStore(Protocol):
    """Where clients keep their local state, by branch of the run and partition id."""

    def load(self, branch: str, client: int) -> LocalState | None: ...

    def save(self, branch: str, client: int, state: LocalState) -> None: ...

    def fork(self, source: str, target: str, clients: int) -> None:
        """Give branch `target` a copy of every state of branch `source`."""


class MemoryStore:
    """Local states in this process (inline backend)."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], LocalState] = {}

    def load(self, branch: str, client: int) -> LocalState | None:
        return self._kept.get((branch, client))

    def save(self, branch: str, client: int, state: LocalState) -> None:
        self._kept[branch, client] = state

    def fork(self, source: str, target: str, clients: int) -> None:
        for client in range(clients):
            state = self._kept.get((source, client))
            if state is not None:
                copied = {name: t.clone() for name, t in state.tensors.items()}
                memory = json.loads(json.dumps(state.memory))
                self._kept[target, client] = LocalState(copied, memory)


class DiskStore:
    """Local states under a folder that every worker process reaches (Ray backend)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, branch: str, client: int) -> Path:
        return self.root / branch / f"client-{client:04d}.safetensors"

    def load(self, branch: str, client: int) -> LocalState | None:
        path = self._path(branch, client)
        if not path.exists():
            return None
        memory = json.loads(path.with_suffix(".json").read_text())
        return LocalState(load_file(path), memory)

    def save(self, branch: str, client: int, state: LocalState) -> None:
        path = self._path(branch, client)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(state.tensors, path)
        path.with_suffix(".json").write_text(json.dumps(state.memory))

    def fork(self, source: str, target: str, clients: int) -> None:
        for client in range(clients):
            state = self.load(source, client)
            if state is not None:
                self.save(target, client, state)


def write_tensors(tensors: State, path: Path) -> None:
    """Write a state atomically: a run that dies midway leaves no half file."""
    partial = path.with_suffix(".partial")
    save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, partial)
    partial.rename(path)


@dataclass(frozen=True)
class Snapshot:
    """The global weights after a round, with the bank of the attacker's client then."""

    round: int
    state: State
    holder: State


class SnapshotStore:
    """Snapshots of one run: `<root>/<branch>/round-0040.safetensors`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(self, branch: str, snapshot: Snapshot) -> None:
        """Write the global weights as `global.*` and the holder's local tensors as `holder.*`."""
        folder = self.root / branch
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"global.{n}": t for n, t in snapshot.state.items()}
        tensors |= {f"holder.{n}": t for n, t in snapshot.holder.items()}
        write_tensors(tensors, folder / f"round-{snapshot.round:04d}.safetensors")

    def rounds(self, branch: str) -> list[int]:
        """Rounds that were kept, in order."""
        files = (self.root / branch).glob("round-*.safetensors")
        return sorted(int(f.stem.removeprefix("round-")) for f in files)

    def load(self, branch: str, round: int) -> Snapshot:
        tensors = load_file(self.root / branch / f"round-{round:04d}.safetensors")
        return Snapshot(
            round,
            {n.removeprefix("global."): t for n, t in tensors.items() if n.startswith("global.")},
            {n.removeprefix("holder."): t for n, t in tensors.items() if n.startswith("holder.")},
        )

    def drop(self, branch: str) -> None:
        """Delete all that was kept of `branch`."""
        shutil.rmtree(self.root / branch, ignore_errors=True)

    def save_sent(self, branch: str, round: int, state: State) -> None:
        """Keep what the malicious client uploaded in `round`."""
        folder = self.root / branch / "sent"
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(state, folder / f"round-{round:04d}.safetensors")

    def sent(self, branch: str) -> dict[int, State]:
        """Crafted uploads by round."""
        files = sorted((self.root / branch / "sent").glob("round-*.safetensors"))
        return {int(f.stem.removeprefix("round-")): load_file(f) for f in files}

    def save_before(self, branch: str, round: int, state: State) -> None:
        """Keep the global weights that the clients of `round` received."""
        write_tensors(state, self._updates(branch, round) / "before.safetensors")

    def save_update(self, branch: str, round: int, client: int, state: State) -> None:
        """Keep what `client` sent in `round`: one file of the size of the shared weights."""
        write_tensors(state, self._updates(branch, round) / f"client-{client:04d}.safetensors")

    def before(self, branch: str) -> StateFiles:
        """Round -> global weights that its clients received, for rounds whose updates are kept."""
        folders = sorted((self.root / branch / "updates").glob("round-*"))
        files = ((f, f / "before.safetensors") for f in folders)
        return StateFiles({_number(f): file for f, file in files if file.exists()})

    def updates(self, branch: str, round: int) -> StateFiles:
        """Client -> weights that it sent in `round`; empty where they were not kept."""
        files = sorted(
            (self.root / branch / "updates" / f"round-{round:04d}").glob("client-*.safetensors")
        )
        return StateFiles({_number(f): f for f in files})

    def _updates(self, branch: str, round: int) -> Path:
        folder = self.root / branch / "updates" / f"round-{round:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class StateFiles(Mapping[int, State]):
    """States on disk by number: each is read when it is asked for, and none stays."""

    def __init__(self, files: Mapping[int, Path]) -> None:
        self._files = dict(sorted(files.items()))

    def __getitem__(self, number: int) -> State:
        return load_file(self._files[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _number(path: Path) -> int:
    """3 of `round-0003` or `client-0003.safetensors`."""
    return int(path.name.partition(".")[0].rpartition("-")[2])
