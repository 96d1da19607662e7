"""What the federation leaves behind: updates in flight, what clients keep, snapshots on disk."""

from __future__ import annotations

import copy
import json
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from fedmia.ssl.base import State, under


@dataclass(frozen=True)
class Update:
    """One client's reply in one round.

    Attributes:
        client: partition id. round: 1, 2, ... over the whole run.
        state: the shared weights that it sent. examples: images that these rest on; 0: it is
            not aggregated.
        metrics: numbers of its training and defence.
    """

    client: int
    round: int
    state: State
    examples: int
    metrics: dict[str, float]


@dataclass
class ClientState:
    """What one client keeps between rounds: tensors, and a JSON-able memory."""

    tensors: State = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass
class StrategyContext:
    """What the client's half of a strategy works on.

    Attributes:
        received: the global weights as they came, by name.
        broadcast: tensors that the server's half sent beside them.
        kept: tensors of the strategy's own that stay with the client between the rounds of a
            branch; empty before its first round.
        memory: JSON-able, kept likewise, shared with the client's defence.
        weights: the parameters in training, by their names in `received`.
        reach: the learning rates of the steps so far, summed, over 1 - momentum: how far a
            gradient of 1 in every step moves a weight in the end.
    """

    received: State
    broadcast: State
    kept: State
    memory: dict[str, Any]
    weights: dict[str, nn.Parameter]
    reach: float = 0.0


class StateStore(ABC):
    """Where clients keep their local state, by branch of the run and partition id."""

    @abstractmethod
    def load(self, branch: str, client: int) -> ClientState | None: ...

    @abstractmethod
    def save(self, branch: str, client: int, state: ClientState) -> None: ...

    def fork(self, source: str, target: str, clients: int) -> None:
        """Give branch `target` a copy of every state of branch `source`."""
        for client in range(clients):
            if (state := self.load(source, client)) is not None:
                self.save(target, client, copy.deepcopy(state))


class MemoryStore(StateStore):
    """Local states in this process (inline backend)."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], ClientState] = {}

    def load(self, branch: str, client: int) -> ClientState | None:
        return self._kept.get((branch, client))

    def save(self, branch: str, client: int, state: ClientState) -> None:
        self._kept[branch, client] = state


class SingleStateStore(StateStore):
    """The state of the one client at work, on its way to it and back; what else is saved is lost.

    The client works on copies: what is kept stays as it was, should it be asked again.
    """

    def __init__(self, kept: ClientState | None) -> None:
        self._kept = kept
        self.new: ClientState | None = None

    def load(self, branch: str, client: int) -> ClientState | None:
        if self._kept is None:
            return None
        own = {name: tensor.clone() for name, tensor in self._kept.tensors.items()}
        return ClientState(own, copy.deepcopy(self._kept.memory))

    def save(self, branch: str, client: int, state: ClientState) -> None:
        self.new = state


def write_tensors(tensors: State, path: Path, about: object = None) -> None:
    """Write a state, and what is JSON-able `about` it, atomically: a run that dies midway leaves no
    half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    told = None if about is None else {"about": json.dumps(about)}
    save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, partial, told)
    partial.replace(path)


def read_tensors(path: Path) -> tuple[State, Any]:
    """What `write_tensors` wrote: the state, and what it was told about it, or None."""
    with safe_open(path, framework="pt") as file:
        told = (file.metadata() or {}).get("about")
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return state, None if told is None else json.loads(told)


@dataclass(frozen=True)
class Snapshot:
    """The global weights after a round, with the bank of the attacker's client then."""

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
        return under(self._prefix, load_file(self._files[number]))

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class SnapshotStore:
    """Snapshots of one run: `<root>/<branch>/round-0040.safetensors`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(self, branch: str, snapshot: Snapshot) -> None:
        """Write the global weights as `global.*` and the holder's local tensors as `holder.*`."""
        tensors = {f"global.{n}": t for n, t in snapshot.state.items()}
        tensors |= {f"holder.{n}": t for n, t in snapshot.holder.items()}
        write_tensors(tensors, self.root / branch / _round(snapshot.round))

    def rounds(self, branch: str) -> list[int]:
        """Rounds that were kept, in order."""
        return sorted(map(_number, (self.root / branch).glob("round-*.safetensors")))

    def load(self, branch: str, round: int) -> Snapshot:
        tensors = load_file(self.root / branch / _round(round))
        return Snapshot(round, under("global.", tensors), under("holder.", tensors))

    def received(self, branch: str, last: int) -> StateFiles:
        """Round -> global weights after it, for the rounds up to `last` that were kept."""
        kept = (self.root / branch / _round(r) for r in self.rounds(branch) if r <= last)
        return StateFiles(kept, "global.")

    def drop(self, branch: str) -> None:
        """Delete all that was kept of `branch`."""
        shutil.rmtree(self.root / branch, ignore_errors=True)

    def keep_only(self, branch: str, rounds: set[int], last: int) -> None:
        """Delete the snapshots of other rounds than `rounds`, and the updates after `last`."""
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
        """Keep the global weights that the clients of `round` received."""
        write_tensors(state, self._updates(branch, round) / "before.safetensors")

    def save_update(self, branch: str, round: int, client: int, state: State) -> None:
        """Keep what `client` sent in `round`: one file of the size of the shared weights."""
        write_tensors(state, self._updates(branch, round) / f"client-{client:04d}.safetensors")

    def drop_updates(self, branch: str, round: int) -> None:
        """Delete what was kept of a round that is not finished."""
        shutil.rmtree(self._updates(branch, round), ignore_errors=True)

    def before(self, branch: str) -> StateFiles:
        """Round -> global weights that its clients received, for rounds whose updates are kept."""
        return StateFiles((self.root / branch / "updates").glob("round-*/before.safetensors"))

    def updates(self, branch: str, round: int) -> StateFiles:
        """Client -> weights that it sent in `round`; empty where they were not kept."""
        return StateFiles(self._updates(branch, round).glob("client-*.safetensors"))

    def _updates(self, branch: str, round: int) -> Path:
        return self.root / branch / "updates" / f"round-{round:04d}"


def _round(round: int) -> str:
    return f"round-{round:04d}.safetensors"


def _number(path: Path) -> int:
    """3 of `round-0003.safetensors` or `round-0003/before.safetensors`."""
    return int(re.findall(r"-(\d+)", str(path))[-1])
