"""Files that are whole, and on the disk, before anything counts on them.

A file is written under a name of its own, forced to the disk, renamed, and then the name is forced:
after a power cut there is the new file or the one before, never a part of one. What an index names
is forced before the index, all of it together. Files and folders are made for their owner alone:
they tell who was a member.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from safetensors import SafetensorError

SIDE_BY_SIDE = 4  # files forced at once: the file system commits them together
UNFORCEABLE = (errno.EINVAL, errno.ENOTSUP)  # of folders, on file systems that know no such thing
OWNER_FILE, OWNER_FOLDER = 0o600, 0o700  # rights of what is made here

# What helps against an error of the system, after which the same may succeed.
CURES: Mapping[int, str] = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "your quota there is used up: delete files of yours",
    errno.EROFS: "its file system is mounted read-only: have it mounted for writing",
    errno.EACCES: "have its rights, or those of its folder, changed",
    errno.EPERM: "have its rights, or those of its folder, changed",
    errno.EIO: "its disk is damaged or away: look into the log of the system",
    errno.ENXIO: "its disk is away: attach it again",
    errno.ENODEV: "its disk is away: attach it again",
    errno.ESTALE: "its network file system lost it: have that mounted again",
    errno.ETIMEDOUT: "the server of its network file system is away: wait for it",
    errno.EHOSTDOWN: "the server of its network file system is away: wait for it",
    errno.ENOTCONN: "its file system is no longer mounted: mount it again",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "the machine has too many files open: end other programs",
    errno.ENOLCK: "its file system has no locks left: look after its lock server",
    errno.ENOMEM: "end other programs, or take a machine with more memory",
}
# What helps where the same would fail for ever.
WAYS_ROUND: Mapping[int, str] = {
    errno.ENAMETOOLONG: "name a folder with a shorter path",
    errno.ELOOP: "links lead in a circle: remove one of them",
    errno.ENOTDIR: "a part of its path is a file: name another folder",
    errno.EISDIR: "a folder is in its place: move that away",
    errno.ENOENT: "it, or a folder above it, was deleted or moved meanwhile",
    errno.EFBIG: "name a folder on a file system that takes larger files",
}


class DiskError(OSError):
    """A disk is full, read-only, broken or gone. Its message is one line: what, why, what helps.

    Args:
        text: the message.
        reason: why, and what helps, without what it is about; empty: the message.
        curable: whether the same may succeed later.

    Attributes:
        reason: as given.
        curable: as given.
    """

    def __init__(self, text: str, reason: str = "", curable: bool = True) -> None:
        super().__init__(text)
        self.reason, self.curable = reason or text, curable


@contextlib.contextmanager
def explain(what: str = "", hint: str = "") -> Iterator[None]:
    """Turn every error of a disk inside into a `DiskError`.

    Args:
        what: could not be done; empty: the error names the file itself.
        hint: what the user can do once the cause is gone; left out where it will not go.

    Yields:
        Nothing.

    Raises:
        DiskError: a file could not be written or read.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        if isinstance(error, DiskError):
            text, reason, curable = str(error), error.reason, error.curable
        else:
            name = getattr(error, "filename", None)
            reason, curable = _reason(error)
            what = what or (f"'{name}'" if name else "")
            text = f"{what}: {reason}" if what else reason
        raise DiskError(f"{text}; {hint}" if hint and curable else text, reason, curable) from error


def _reason(error: Exception) -> tuple[str, bool]:
    """Why, with what helps, and whether the same may succeed later."""
    code, why = getattr(error, "errno", None), getattr(error, "strerror", None) or str(error)
    if number := re.search(r"os error (\d+)", str(error)):  # of safetensors, which tells it alone
        code = int(number[1])
        why = os.strerror(code)
    advice = CURES.get(code or 0) or WAYS_ROUND.get(code or 0)
    return (f"{why}: {advice}" if advice else why), code not in WAYS_ROUND


def make_folder(folder: Path, within: Path | None = None, forced: bool = True) -> None:
    """Make a folder, and those above it; none that is there changes.

    Args:
        folder: to be made, if it is not there.
        within: a folder above it that must be there: one that vanished is not made again.
        forced: whether their names are on the disk then; else whoever counts on them forces them.

    Raises:
        DiskError: it cannot be made.
    """
    if folder.is_dir():
        return
    with explain(f"cannot make '{folder}'"):
        missing = [p for p in (folder, *folder.parents) if not p.exists()]
        if within in missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(within))
        for path in reversed(missing):
            path.mkdir(OWNER_FOLDER, exist_ok=True)
            if forced:
                force(path.parent)


def make_file(path: Path) -> None:
    """Make an empty file for its owner alone, where there is none; writers keep its rights.

    Raises:
        OSError: it cannot be made.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, OWNER_FILE))


def force(path: Path) -> None:
    """Have the content of a file, or the names in a folder, on the disk.

    Raises:
        OSError: it cannot be.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNFORCEABLE or not path.is_dir():
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(handle)


def force_all(files: Sequence[Path]) -> None:
    """Have files and their names on the disk; those that were deleted since are passed over.

    Raises:
        DiskError: one cannot be.
    """
    with explain():
        _force_each(files)
        _force_each([*{file.parent: None for file in files}])


def _force_each(paths: Sequence[Path]) -> None:
    def force_one(path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            force(path)

    with ThreadPoolExecutor(SIDE_BY_SIDE, "force") as pool:
        list(pool.map(force_one, paths))


def force_tree(folder: Path) -> None:
    """Have all that lies in a folder on the disk, and the folder's name.

    Raises:
        DiskError: it cannot be.
    """
    inside = [Path(at, name) for at, _, names in os.walk(folder) for name in (*names, ".")]
    force_all([*(path for path in inside if path.is_file() or path.is_dir()), folder])


@contextlib.contextmanager
def replacing(*paths: Path, forced: bool = True, shared: bool = False) -> Iterator[list[Path]]:
    """Files to write, which take the places of `paths`, in that order, once all are whole.

    Args:
        paths: of the files.
        forced: whether they are on the disk then; else whoever counts on them forces them.
        shared: whether several processes may write them at once.

    Yields:
        A file for each path.

    Raises:
        DiskError: they cannot be written; those of before stay.
    """
    mark = f".{os.getpid()}.partial" if shared else ".partial"
    partials = [path.with_name(path.name + mark) for path in paths]
    try:
        with explain(f"cannot write '{paths[0]}'"):
            for partial in partials:
                make_file(partial)
            yield partials
            if forced:
                _force_each(partials)
            for partial, path in zip(partials, paths, strict=True):
                os.replace(partial, path)
            if forced:
                _force_each([*{path.parent: None for path in paths}])
    finally:
        for partial in partials:
            with contextlib.suppress(OSError):
                partial.unlink()


def write(files: Mapping[Path, bytes | str]) -> None:
    """Write files that belong together: all are whole before the first takes its place.

    Args:
        files: path -> content; the last is the one that counts on the others.

    Raises:
        DiskError: they cannot be written; those of before stay.
    """
    with replacing(*files) as partials:
        for partial, (path, content) in zip(partials, files.items(), strict=True):
            with explain(f"cannot write '{path}'"):
                if isinstance(content, str):  # names of files in it may be no UTF-8
                    content = content.encode(errors="backslashreplace")
                partial.write_bytes(content)


def move(source: Path, target: Path) -> None:
    """Give a folder that counts from now on its name, once all that is in it is on the disk.

    Args:
        source: the folder.
        target: its new path, where nothing is.

    Raises:
        DiskError: it cannot be moved.
    """
    force_tree(source)
    with explain(f"cannot move '{source}'"):
        os.rename(source, target)
        force(target.parent)
        force(source.parent)
