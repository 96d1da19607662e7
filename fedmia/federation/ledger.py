"""Local states of all clients, in the server's process."""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from fedmia.ssl.base import on_device
from fedmia.storage.arena import nbytes, on_host
from fedmia.storage.durable import force_all, make_folder
from fedmia.storage.snapshot import ClientState, StateStore, read_tensors, write_tensors

ROOM = 1 << 28  # bytes of clients' states in the machine's memory
Key = tuple[str, int]


class _Memory:
    """States in one kind of memory, by key, the one that came first at the front.

    Args:
        room: bytes that they may take.
    """

    def __init__(self, room: float) -> None:
        self.room, self.bytes = room, 0
        self.states: dict[Key, ClientState] = {}

    def add(self, key: Key, state: ClientState) -> None:
        """Keep a state, at the end."""
        self.pop(key)
        self.states[key], self.bytes = state, self.bytes + nbytes(state.tensors)

    def pop(self, key: Key) -> ClientState | None:
        """Give a state up."""
        if (state := self.states.pop(key, None)) is not None:
            self.bytes -= nbytes(state.tensors)
        return state

    def overflow(self, least: int) -> Iterator[tuple[Key, ClientState]]:
        """Give up the first, until there is room for the others; `least` stay in any case."""
        while self.bytes > self.room and len(self.states) > least:
            key = next(iter(self.states))
            yield key, self.states[key]
            self.pop(key)


class Ledger(StateStore):
    """Local states of all clients: the latest where they were made, on a GPU say, while there is
    room; those before in the machine's memory, while there is room; others on disk.

    A state that is given out is never changed. Each file is written once. It is deleted when
    neither a current state nor an index needs it.

    Args:
        root: folder of the files, in one that is there; None: all stay in memory.
        room: bytes of tensors that may stay in the machine's memory.
        device_room: bytes of tensors that may stay on another device.
    """

    def __init__(self, root: Path | None = None, room: int = ROOM, device_room: int = ROOM) -> None:
        self.root = root
        self._device, self._host = _Memory(device_room), _Memory(math.inf if root is None else room)
        self._files: dict[Key, str] = {}  # of states that are on disk as they are now
        self._uses: Counter[str] = Counter()
        self._indexed: set[str] = set()
        self._waiting: dict[str, ClientState] = {}  # by the name of the file that it will be in
        self._unforced: list[Path] = []
        self._serial = 0
        self._lock = Lock()

    def load(self, branch: str, client: int) -> ClientState | None:
        """A client's state; None before its first round."""
        with self._lock:
            if state := self._in_memory().get((branch, client)):
                return state
            if (name := self._files.get((branch, client))) is None:
                return None
            if state := self._waiting.get(name):
                return state
            return ClientState(*read_tensors(self._file(name)))

    def save(self, branch: str, client: int, state: ClientState) -> None:
        """Keep a client's state, in memory until a checkpoint is written."""
        with self._lock:
            self._keep_in_memory((branch, client), state)
            self._set_file((branch, client), None)
            for key, old in self._device.overflow(0):
                self._host.add(key, ClientState(on_device(old.tensors, "cpu"), old.memory))
            for key, old in self._host.overflow(1):
                if key not in self._files:
                    self._write_file(self._new_file_name(key), old)

    def fork(self, source: str, target: str, clients: int) -> None:
        """Give branch `target` the states of branch `source`, and their files."""
        with self._lock:  # a state is replaced, never changed: the copy may share it
            branches = (source, target)  # what was never drawn has no state in either
            in_memory = self._in_memory()
            for client in sorted({c for b, c in [*in_memory, *self._files] if b in branches}):
                if (state := in_memory.get((source, client))) is not None:
                    self._keep_in_memory((target, client), state)
                self._set_file((target, client), self._files.get((source, client)))

    def index(self) -> dict[str, Any]:
        """What `restore` needs, once `flush` has written every state."""
        with self._lock:
            for key, state in self._in_memory().items():
                if key not in self._files:
                    self._waiting[self._new_file_name(key)] = state
            names: list[Any] = [[*key, name] for key, name in self._files.items()]
            self._indexed |= {name for *_, name in names}
            return {"serial": self._serial, "files": names}

    def flush(self) -> None:
        """Write the states that are not on disk yet, and force all that were written."""
        for name, state in list(self._waiting.items()):
            self._write_file(name, state)
            with self._lock:
                del self._waiting[name]
        with self._lock:
            written, self._unforced = self._unforced, []
        force_all(written)

    def confirm_index(self, index: Mapping[str, Any]) -> None:
        """Note that `index` is on disk: its files stay, and files of the index before it may go."""
        with self._lock:
            before, self._indexed = self._indexed, {name for *_, name in index["files"]}
            for name in before - self._indexed:
                self._delete(name)

    def restore(self, index: Mapping[str, Any]) -> None:
        """Take over the states that an index names, and forget all others."""
        with self._lock:
            self._device, self._host = _Memory(self._device.room), _Memory(self._host.room)
            self._waiting, self._serial = {}, int(index["serial"])
            self._files = {(str(b), int(c)): str(name) for b, c, name in index["files"]}
            self._uses = Counter(self._files.values())
            self._indexed = set(self._uses)
            for file in self._file("").glob("*"):
                if file.name not in self._indexed:
                    file.unlink()

    def _in_memory(self) -> Mapping[Key, ClientState]:
        """The states in both memories; a key is in one of them."""
        return ChainMap(self._device.states, self._host.states)

    def _keep_in_memory(self, key: Key, state: ClientState) -> None:
        here, there = (self._host, self._device)[:: 1 if on_host(state.tensors) else -1]
        there.pop(key)
        here.add(key, state)

    def _write_file(self, name: str, state: ClientState) -> None:
        path = self._file(name)
        make_folder(path.parent, path.parent.parent)
        write_tensors(state.tensors, path, state.memory, forced=False)
        self._unforced.append(path)

    def _file(self, name: str) -> Path:
        assert self.root is not None  # else none is ever written
        return self.root / name

    def _new_file_name(self, key: Key) -> str:
        """A new file for the state of a key."""
        self._serial += 1
        name = f"{key[0]}-{key[1]:04d}-{self._serial:08d}.safetensors"
        self._set_file(key, name)
        return name

    def _set_file(self, key: Key, name: str | None) -> None:
        """The state of `key` is in the file `name`, or in none."""
        before = self._files.pop(key, None)
        if name is not None:
            self._files[key] = name
            self._uses[name] += 1
        if before is not None:
            self._uses[before] -= 1
            self._delete(before)

    def _delete(self, name: str) -> None:
        if not self._uses[name] and name not in self._indexed:
            del self._uses[name]
            self._file(name).unlink(missing_ok=True)
