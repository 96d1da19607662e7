"""A disk that keeps what was forced to it and nothing else, for cuts of its power at any moment."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any

import pytest

Tree = dict[str, bytes | None]  # path below the root -> content, None of a folder
# What happens to names that were not forced: none is kept; all are; of changes, deletions alone.
LOST, KEPT, DELETED = "lost", "kept", "deleted"
Entry = tuple[int, bool]  # number of a file or folder, and whether it is a folder
CHANGES = ("replace", "rename", "unlink", "rmdir", "mkdir")


class Disk:
    """What a power cut would leave of a folder, after each call of `os` that decides it.

    Content counts as it was when its file was last forced; of a file that never was it is empty.

    Attributes:
        states: what cuts would leave, each once, by the fate of unforced names, in order.
        calls: the calls of `os` and the paths below the root that they were made with.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.states: dict[str, list[Tree]] = {LOST: [], KEPT: [], DELETED: []}
        self.calls: list[tuple[str, str]] = []
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, Entry]] = {}
        self._handles: dict[int, int] = {}  # so that no number of a deleted file is used again
        self._lock = RLock()

    def fsync(self, handle: int) -> None:
        about = os.fstat(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path != self.root and self.root not in path.parents:
            return
        with self._lock:
            self._hold(about.st_ino, Path(f"/proc/self/fd/{handle}"))
            if stat.S_ISDIR(about.st_mode):
                self._names[about.st_ino] = names = entries(path)
                for name, (number, _) in names.items():
                    self._hold(number, path / name)
            else:
                self._content[about.st_ino] = os.pread(handle, about.st_size, 0)
            self.note("fsync", path)

    def _hold(self, number: int, path: Path) -> None:
        with suppress(FileNotFoundError):
            if number not in self._handles:
                self._handles[number] = os.open(path, os.O_PATH)

    def note(self, call: str, path: Any) -> None:
        """Keep what a cut now would leave."""
        with self._lock:
            where = os.path.relpath(os.fspath(path), self.root) if isinstance(path, Path) else path
            self.calls.append((call, str(where)))
            for fate, states in self.states.items():
                tree: Tree = {}
                self._add(tree, self.root, self.root.stat().st_ino, "", fate)
                if not states or states[-1] != tree:
                    states.append(tree)

    def _add(self, tree: Tree, now: Path, number: int, place: str, fate: str) -> None:
        """Add a folder to a tree: the one of a number on the disk, now at `now`."""
        current, forced = entries(now), self._names.get(number, {})
        names = current if fate == KEPT else forced
        if fate == DELETED:
            names = {name: entry for name, entry in forced.items() if name in current}
        for name, (at, is_folder) in names.items():
            path = f"{place}{name}"
            tree[path] = None if is_folder else self._content.get(at, b"")
            if is_folder:
                self._add(tree, now / name, at, f"{path}/", fate)

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)


def entries(folder: Path) -> dict[str, Entry]:
    """What lies in a folder now, by name; nothing where it is gone."""
    with suppress(OSError):
        return {e.name: (e.inode(), e.is_dir()) for e in os.scandir(folder)}
    return {}


@contextmanager
def recorded(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk under a folder while the context is open."""
    root.mkdir(parents=True, exist_ok=True)
    disk = Disk(root)

    def noted(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *more: Any, **options: Any) -> Any:
            answer = plain(path, *more, **options)
            disk.note(name, more[0] if name in ("replace", "rename") else path)
            return answer

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk.fsync)
        for name in CHANGES:
            patch.setattr(os, name, noted(name, getattr(os, name)))
        try:
            yield disk
        finally:
            disk.close()


def restore(tree: Tree, folder: Path) -> Path:
    """A folder as a cut left it."""
    folder.mkdir()
    for name, content in tree.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    return folder


@contextmanager
def failing(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str = "", after: int = 0,
    code: int = errno.ENOSPC,
) -> Iterator[None]:  # fmt: skip
    """A disk on which nothing below `root` can be forced or renamed while the context is open.

    Args:
        root: folder on it.
        monkeypatch: of the test.
        name: part of the paths that are meant.
        after: so many such calls go well first.
        code: `errno` of the failure.
    """
    replace, fsync, left = os.replace, os.fsync, [after]

    def fail(path: str) -> None:
        if path.startswith(f"{root}{os.sep}") and name in path:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(code, os.strerror(code))

    def replaced(source: Any, target: Any, **more: Any) -> None:
        fail(os.path.abspath(target))
        replace(source, target, **more)

    def forced(handle: int) -> None:
        fail(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replaced)
        patch.setattr(os, "fsync", forced)
        yield
