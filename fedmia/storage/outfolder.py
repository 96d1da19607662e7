"""The folder of `--out`: of one command at a time, refused where occupied, made, and removed where
the run left nothing."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from fedmia.runtime.environment import describe
from fedmia.settings.errors import InputError, opt
from fedmia.settings.values import escape_name
from fedmia.settings.yamlfile import dump
from fedmia.storage.durable import OWNER_FILE, DiskError, explain, make_folder, write
from fedmia.storage.manifest import CONFIG, FORMAT, LOCK
from fedmia.storage.runfolder import outside_plugins

# Of file systems that have no locks, such as some of networks.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class OutFolder:
    """`--out`, or nowhere. What `begin` takes belongs to this process until the context is left.

    Args:
        folder: None to keep nothing.
        another: what the error calls the results of another command line.
        ours: whether a folder with settings is of this command line.

    Raises:
        InputError: the folder is a file, holds anything but what may be gone on with, cannot be
            made, or another command is at work in it.
    """

    def __init__(
        self, folder: Path | None, another: str, ours: Callable[[Path], bool] = lambda folder: False
    ) -> None:
        self.folder, self._another, self._ours = folder, another, ours
        self._new_folders, self._lock = list[Path](), ExitStack()
        if folder is None:
            return
        name = escape_name(str(folder))
        if os.fsdecode(name.encode()) != str(folder):  # safetensors writes none there
            raise InputError(f"{opt('out')} '{name}' is no UTF-8; name another folder")
        try:
            exists = folder.exists()
        except OSError as error:
            with _refusing(folder), explain():
                raise OSError(error.errno, error.strerror) from None
        if not exists:
            above = next(p for p in folder.absolute().parents if p.exists())
            if not above.is_dir() or not os.access(above, os.W_OK):
                what = "is no folder" if not above.is_dir() else "cannot be written to"
                raise InputError(f"{self._where} cannot be made: '{above}' {what}")
            return
        if not folder.is_dir():
            raise InputError(f"{self._where} is a file")
        if occupied := self._find_occupant():
            if (folder / LOCK).exists():
                with locked(folder, self._where):  # at work there, it is the better reason
                    pass
            raise occupied

    @property
    def _where(self) -> str:
        return f"{opt('out')} '{self.folder}'"

    def _find_occupant(self) -> InputError | None:
        """The refusal of a folder that holds anything but what may be gone on with."""
        assert self.folder is not None
        inside = sorted(p.name for p in self.folder.iterdir() if p.name != LOCK)
        if not inside or (CONFIG in inside and self._ours(self.folder)):
            return None
        what = self._another if CONFIG in inside else f"'{inside[0]}'"
        return InputError(f"{self._where} already holds {what}; name a new folder")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.give_up()
        self._lock.close()

    def path_to(self, name: str) -> Path | None:
        """A file or folder in it, None where nothing is kept."""
        return None if self.folder is None else self.folder / name

    def begin(self, tree: dict[str, object] | None) -> None:
        """Make the folder, keep other commands out of it, and write the settings into it.

        Args:
            tree: the settings; None: those that are there stay.

        Raises:
            InputError: it cannot be made or written to, or is another command's by now.
        """
        if self.folder is None:
            return
        folder = self.folder.absolute()
        config = folder / CONFIG
        new_folders = [p for p in (folder, *folder.parents) if not p.exists()]
        with _refusing(self.folder):
            make_folder(folder)
            self._lock.enter_context(locked(folder, self._where))
            if tree is None:
                return
            if occupied := self._find_occupant():  # by a command that has ended since
                raise occupied
            self._new_folders = [config] * (not config.exists()) + new_folders
            write_settings(folder, tree)

    def give_up(self) -> None:
        """Remove what `begin` made, unless the folder holds results by now."""
        with suppress(OSError):  # of a disk that failed, or of a folder that is another's by now
            inside = [] if self.folder is None else [p.name for p in self.folder.iterdir()]
            if self._new_folders and not {*inside} - {CONFIG, LOCK}:
                for path in self._new_folders:
                    if path.is_dir():
                        (path / LOCK).unlink(missing_ok=True)
                        path.rmdir()
                    else:
                        path.unlink(missing_ok=True)


def write_settings(folder: Path, tree: Mapping[str, object], **about: object) -> None:
    """Write the settings of a run, an audit or an encoder into its folder, with the hash of the
    file of each plugin from outside that they name.

    Args:
        folder: that is there.
        tree: the settings.
        about: where and with what it takes place; none: this machine and these versions.

    Raises:
        DiskError: they cannot be written.
    """
    facts = {"format": FORMAT, **(about or describe())}
    if plugins := hash_plugins(tree):
        facts["plugins"] = plugins
    write({folder / CONFIG: dump(tree, facts)})


def hash_plugins(tree: Mapping[str, object]) -> dict[str, str]:
    """SHA-256 of the file of each plugin from outside that settings name, by its name.

    Args:
        tree: the settings, whose plugins are imported.

    Returns:
        Name -> hash in hexadecimal; nothing of a class of a Python session, whose name has one.
    """
    hashes = {}
    for name in outside_plugins(tree):
        module = sys.modules.get(name.partition(":")[0])
        if module is not None and (file := module.__file__) is not None:
            hashes[name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return hashes


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    """Errors of the disk inside as those of `--out`."""
    try:
        yield
    except DiskError as error:
        raise InputError(f"{opt('out')} '{folder}' cannot be made: {error.reason}") from None


@contextmanager
def locked(folder: Path, where: str) -> Iterator[None]:
    """Keep other commands out of a folder until the context is left or this process ends.

    A file system without locks keeps none out, which is said on standard error.

    Args:
        folder: that is there.
        where: what the error calls it.

    Yields:
        Nothing.

    Raises:
        InputError: another command is at work in it.
        DiskError: nothing can be written there.
    """
    path = folder / LOCK
    with explain(f"cannot write '{path}'"):
        handle = _take(path, where)
    try:
        yield
    finally:
        with suppress(OSError):  # of a disk that failed, or a folder that is gone
            path.unlink()
        os.close(handle)


def _take(path: Path, where: str) -> int:
    """The handle of a lock's file, which holds this process and host."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, OWNER_FILE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(handle), os.stat(path)):
                raise FileNotFoundError
        except FileNotFoundError:  # removed by who had it: there may be a new one
            os.close(handle)
            continue
        except BlockingIOError:
            who = os.read(handle, 300).decode(errors="replace").strip()
            os.close(handle)
            by = f" ({who})" if who else ""
            raise InputError(f"{where}: another command is at work in it{by}") from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(handle)
                raise
            print(
                f"fedmia: {where}: its file system has no locks ({error.strerror}): start no other "
                "command there until this one ends",
                file=sys.stderr,
            )
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {platform.node()}\n".encode())
        return handle
