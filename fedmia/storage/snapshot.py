"""Client updates, the state that clients keep between rounds, and snapshots on disk."""

from __future__ import annotations

import copy
import json
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from fedmia.options.bounded import parse_json
from fedmia.options.errors import InputError
from fedmia.options.filetype import check_file_type
from fedmia.ssl.base import State, under
from fedmia.storage.durable import make_folder, replacing


@dataclass(frozen=True)
class Update:
    """One client's upload in one round.

    Attributes:
        client: partition id.
        round: 1, 2, ... over the whole run.
        state: the shared weights that it sent.
        examples: number of images that these were trained on; 0: the server does not aggregate
            them.
        metrics: numbers of its training and defence.
    """

    client: int
    round: int
    state: State
    examples: int
    metrics: dict[str, float]


@dataclass
class ClientState:
    """What one client keeps between rounds.

    Attributes:
        tensors: by name: queue, key encoder, optimizer moments, ..
        memory: values that JSON can hold.
    """

    tensors: State = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass
class StrategyContext:
    """What the client's half of a strategy works on.

    Attributes:
        received: the global weights as they came, by name.
        broadcast: tensors that the server's half sent beside them.
        own_state: tensors of the strategy's own that stay with the client between the rounds of a
            branch; empty before its first round.
        memory: JSON-able, stays likewise, shared with the client's defence.
        weights: the parameters in training, by their names in `received`.
        reach: the learning rates of the steps so far, summed, over 1 - momentum: how far a
            gradient of 1 in every step moves a weight in the end.
    """

    received: State
    broadcast: State
    own_state: State
    memory: dict[str, Any]
    weights: dict[str, nn.Parameter]
    reach: float = 0.0


class StateStore(ABC):
    """Where clients keep their local state, by branch of the run and partition id."""

    @abstractmethod
    def load(self, branch: str, client: int) -> ClientState | None:
        """The state of a client in a branch of the run, None where it has none."""

    @abstractmethod
    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Keep the state of a client in a branch of the run."""

    def fork(self, source: str, target: str, clients: int) -> None:
        """Give one branch a copy of every client state of another.

        Args:
            source: branch that is copied.
            target: branch that gets the copies.
            clients: number of clients.
        """
        for client in range(clients):
            if (state := self.load(source, client)) is not None:
                self.save(target, client, copy.deepcopy(state))


class MemoryStore(StateStore):
    """Local states in this process (inline backend)."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], ClientState] = {}

    def load(self, branch: str, client: int) -> ClientState | None:
        """The state of a client, None where it has none."""
        return self._kept.get((branch, client))

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Keep the state of a client."""
        self._kept[branch, client] = state


class SingleStateStore(StateStore):
    """Carries the state of one client to where it trains, and back; any other state is lost.

    The client works on copies: the state stays as it was, in case the client has to train again.
    """

    def __init__(self, state: ClientState | None) -> None:
        self._kept = state
        self.new: ClientState | None = None

    def load(self, branch: str, client: int) -> ClientState | None:
        """A copy of the client's state."""
        if self._kept is None:
            return None
        own = {name: tensor.clone() for name, tensor in self._kept.tensors.items()}
        return ClientState(own, copy.deepcopy(self._kept.memory))

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Keep the client's new state as `new`."""
        self.new = state


def write_tensors(tensors: State, path: Path, about: object = None, forced: bool = True) -> None:
    """Write a state to a file; the file is written whole or not at all.

    Args:
        tensors: by name.
        path: of a safetensors file, in a folder that is there.
        about: kept beside the tensors; what JSON can hold.
        forced: whether it is on the disk when this returns.

    Raises:
        DiskError: it cannot be written.
    """
    metadata = None if about is None else {"about": json.dumps(about)}
    with replacing(path, forced=forced) as (partial,):
        save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, partial, metadata)


def read_tensors(path: Path) -> tuple[State, Any]:
    """Read a file of `write_tensors`: the state, and what was written about it, or None.

    Args:
        path: of the file.

    Returns:
        Tensors by name, and the values.

    Raises:
        InputError: the file is damaged.
    """
    check_file_type(path)
    with _whole(path), safe_open(path, framework="pt") as file:
        about = (file.metadata() or {}).get("about")
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return state, None if about is None else parse_json(about)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Refuse a file that is damaged; errors of its disk pass."""
    try:
        yield
    except (SafetensorError, ValueError) as error:
        if "os error" in str(error):  # of safetensors, which tells it alone
            raise
        raise InputError(f"'{path}' is damaged: {' '.join(str(error).split())[:200]}") from None


@dataclass(frozen=True)
class Snapshot:
    """The global model after a round.

    Attributes:
        round: 0, 1, 2, ...; 0 is the first model.
        state: the global weights.
        holder: local tensors of the attacker's client then, such as its queue.
    """

    round: int
    state: State
    holder: State


class StateFiles(Mapping[int, State]):
    """States on disk by number: each is read when it is asked for, and none stays.

    Args:
        files: their numbers are the last of their paths: `client-0003`, `round-0003/before`.
        prefix: of the names of the tensors that are meant.
    """

    def __init__(self, files: Iterable[Path], prefix: str = "") -> None:
        self._files = dict(sorted((_number(f), f) for f in files))
        self._prefix = prefix

    def only(self, numbers: Iterable[int]) -> StateFiles:
        """The same, of some numbers alone."""
        return StateFiles([self._files[n] for n in numbers], self._prefix)

    def __getitem__(self, number: int) -> State:
        return under(self._prefix, read_tensors(self._files[number])[0])

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class SnapshotStore:
    """Snapshots of one run: `<root>/<branch>/round-0040.safetensors`.

    They are not forced to the disk before an index or a report counts on them.

    Args:
        root: folder of the snapshots, in one that is there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._unforced: list[Path] = []

    def take_unforced(self) -> list[Path]:
        """The files that were written since this was last called."""
        unforced, self._unforced = self._unforced, []
        return unforced

    def _write(self, tensors: State, path: Path) -> None:
        make_folder(path.parent, self.root.parent)
        write_tensors(tensors, path, forced=False)
        self._unforced.append(path)

    def save(self, branch: str, snapshot: Snapshot) -> None:
        """Write a snapshot: the global weights as `global.*`, the holder's local tensors as
        `holder.*`.

        Args:
            branch: of the run.
            snapshot: to write.
        """
        tensors = {f"global.{n}": t for n, t in snapshot.state.items()}
        tensors |= {f"holder.{n}": t for n, t in snapshot.holder.items()}
        self._write(tensors, self.root / branch / _round(snapshot.round))

    def rounds(self, branch: str) -> list[int]:
        """Rounds that were kept, in order."""
        return sorted(map(_number, (self.root / branch).glob("round-*.safetensors")))

    def load(self, branch: str, round: int) -> Snapshot:
        """Read a snapshot.

        Args:
            branch: of the run.
            round: that was kept.

        Returns:
            The snapshot.
        """
        tensors, _ = read_tensors(self.root / branch / _round(round))
        return Snapshot(round, under("global.", tensors), under("holder.", tensors))

    def received(self, branch: str, last: int) -> StateFiles:
        """The global weights after each round that was kept.

        Args:
            branch: of the run.
            last: latest round that counts.

        Returns:
            Round -> weights.
        """
        files = (self.root / branch / _round(r) for r in self.rounds(branch) if r <= last)
        return StateFiles(files, "global.")

    def drop(self, branch: str) -> None:
        """Delete all that was kept of `branch`."""
        shutil.rmtree(self.root / branch, ignore_errors=True)

    def keep_only(self, branch: str, rounds: set[int], last: int) -> None:
        """Delete the snapshots of all but some rounds, and the updates after a round.

        Args:
            branch: of the run.
            rounds: whose snapshots stay.
            last: latest round whose updates stay.
        """
        for round in set(self.rounds(branch)) - rounds:
            (self.root / branch / _round(round)).unlink()
        for folder in (self.root / branch / "updates").glob("round-*"):
            if _number(folder) > last:
                shutil.rmtree(folder)

    def drop_controls(self) -> None:
        """Delete what only scoring needs: the branches beside `main`."""
        for branch in ("zero", "forks", "placebo"):
            self.drop(branch)

    def clear(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.root, ignore_errors=True)

    def untrained(self) -> Snapshot:
        """The run's first model, before any training."""
        return self.load("untrained" if self.rounds("untrained") else "main", 0)

    def save_before(self, branch: str, round: int, state: State) -> None:
        """Keep the global weights that the clients of a round received.

        Args:
            branch: of the run.
            round: 1, 2, ...
            state: the weights.
        """
        self._write(state, self._updates(branch, round) / "before.safetensors")

    def save_update(self, branch: str, round: int, client: int, state: State) -> None:
        """Keep the upload of a client: one file of the size of the shared weights.

        Args:
            branch: of the run.
            round: 1, 2, ...
            client: partition id.
            state: the weights that it sent.
        """
        self._write(state, self._updates(branch, round) / f"client-{client:04d}.safetensors")

    def drop_updates(self, branch: str, round: int) -> None:
        """Delete the uploads of a round that did not end.

        Args:
            branch: of the run.
            round: 1, 2, ...
        """
        shutil.rmtree(self._updates(branch, round), ignore_errors=True)

    def before(self, branch: str) -> StateFiles:
        """Round -> global weights that its clients received, for rounds whose updates are kept."""
        return StateFiles((self.root / branch / "updates").glob("round-*/before.safetensors"))

    def updates(self, branch: str, round: int) -> StateFiles:
        """The uploads of a round.

        Args:
            branch: of the run.
            round: 1, 2, ...

        Returns:
            Client -> weights that it sent; empty where they were not kept.
        """
        return StateFiles(self._updates(branch, round).glob("client-*.safetensors"))

    def _updates(self, branch: str, round: int) -> Path:
        return self.root / branch / "updates" / f"round-{round:04d}"


def _round(round: int) -> str:
    return f"round-{round:04d}.safetensors"


def _number(path: Path) -> int:
    """3 of `round-0003.safetensors` or `round-0003/before.safetensors`."""
    return int(re.findall(r"-(\d+)", str(path))[-1])
