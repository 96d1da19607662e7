"""Local states of all clients, in the server's process."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from fedmia.storage.durable import force_all, make_folder
from fedmia.storage.snapshot import ClientState, StateStore, read_tensors, write_tensors

ROOM = 1 << 28  # bytes of clients' states in memory
Key = tuple[str, int]


class Ledger(StateStore):
    """Local states of all clients: the latest in memory while there is room, others on disk.

    A state that is given out is never changed. Each file is written once. It is deleted when
    neither a current state nor an index needs it.

    Args:
        root: folder of the files, in one that is there; None: all stay in memory.
        room: bytes of tensors that may stay in memory.
    """

    def __init__(self, root: Path | None = None, room: int = ROOM) -> None:
        self.root, self.room = root, math.inf if root is None else room
        self._in_memory: dict[Key, ClientState] = {}
        self._files: dict[Key, str] = {}  # of states that are on disk as they are now
        self._uses: Counter[str] = Counter()
        self._indexed: set[str] = set()
        self._waiting: dict[str, ClientState] = {}  # by the name of the file that it will be in
        self._unforced: list[Path] = []
        self._bytes = self._serial = 0
        self._lock = Lock()

    def load(self, branch: str, client: int) -> ClientState | None:
        """A client's state; None before its first round."""
        with self._lock:
            if state := self._in_memory.get((branch, client)):
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
            while self._bytes > self.room and len(self._in_memory) > 1:
                oldest = next(iter(self._in_memory))
                if oldest not in self._files:
                    self._write_file(self._new_file_name(oldest), self._in_memory[oldest])
                self._bytes -= size(self._in_memory.pop(oldest))

    def fork(self, source: str, target: str, clients: int) -> None:
        """Give branch `target` the states of branch `source`, and their files."""
        with self._lock:  # a state is replaced, never changed: the copy may share it
            branches = (source, target)  # what was never drawn has no state in either
            for client in sorted({c for b, c in [*self._in_memory, *self._files] if b in branches}):
                if (state := self._in_memory.get((source, client))) is not None:
                    self._keep_in_memory((target, client), state)
                self._set_file((target, client), self._files.get((source, client)))

    def index(self) -> dict[str, Any]:
        """What `restore` needs, once `flush` has written every state."""
        with self._lock:
            for key, state in self._in_memory.items():
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
            self._in_memory, self._waiting = {}, {}
            self._bytes, self._serial = 0, int(index["serial"])
            self._files = {(str(b), int(c)): str(name) for b, c, name in index["files"]}
            self._uses = Counter(self._files.values())
            self._indexed = set(self._uses)
            for file in self._file("").glob("*"):
                if file.name not in self._indexed:
                    file.unlink()

    def _keep_in_memory(self, key: Key, state: ClientState) -> None:
        before = self._in_memory.pop(key, None)
        self._bytes += size(state) - (size(before) if before else 0)
        self._in_memory[key] = state  # the last in order

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


def size(state: ClientState) -> int:
    """Bytes of its tensors."""
    return sum(t.numel() * t.element_size() for t in state.tensors.values())
