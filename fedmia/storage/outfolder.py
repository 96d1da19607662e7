"""The folder of `--out`: refused where occupied, made, and removed where the run left nothing."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from fedmia.options.errors import InputError, opt
from fedmia.options.values import escape_name
from fedmia.options.yamlfile import dump
from fedmia.runtime.environment import describe
from fedmia.storage.durable import DiskError, make_folder, write
from fedmia.storage.manifest import CONFIG, FORMAT


@dataclass
class OutFolder:
    """`--out`, or nowhere.

    Args:
        folder: None to keep nothing.
        another: what the error calls the results of another command line.
        ours: whether a config.yaml found there is of this command line.

    Raises:
        InputError: the folder is a file, holds anything but what may be gone on with, or cannot
            be made.
    """

    folder: Path | None
    another: str
    ours: Callable[[Path], bool] = lambda config: False
    _new_folders: list[Path] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        where = f"{opt('out')} '{self.folder}'"
        name = escape_name(str(self.folder))
        if os.fsdecode(name.encode()) != str(self.folder):  # safetensors writes none there
            raise InputError(f"{opt('out')} '{name}' is no UTF-8; name another folder")
        if not self.folder.exists():
            above = next(p for p in self.folder.absolute().parents if p.exists())
            if not above.is_dir() or not os.access(above, os.W_OK):
                what = "is no folder" if not above.is_dir() else "cannot be written to"
                raise InputError(f"{where} cannot be made: '{above}' {what}")
            return
        if not self.folder.is_dir():
            raise InputError(f"{where} is a file")
        inside = sorted(p.name for p in self.folder.iterdir())
        if not inside or (CONFIG in inside and self.ours(self.folder / CONFIG)):
            return
        what = self.another if CONFIG in inside else f"'{inside[0]}'"
        raise InputError(f"{where} already holds {what}; name a new folder")

    def path_to(self, name: str) -> Path | None:
        """A file or folder in it, None where nothing is kept."""
        return None if self.folder is None else self.folder / name

    def begin(self, tree: dict[str, object]) -> None:
        """Make the folder and write the settings into it.

        Raises:
            InputError: it cannot be made or written to.
        """
        if self.folder is None:
            return
        folder = self.folder.absolute()
        config = folder / CONFIG
        self._new_folders = [p for p in (config, folder, *folder.parents) if not p.exists()]
        try:
            make_folder(folder)
            write({config: dump(tree, {"format": FORMAT, **describe()})})
        except DiskError as error:
            raise InputError(
                f"{opt('out')} '{self.folder}' cannot be made: {error.reason}"
            ) from None

    def give_up(self) -> None:
        """Remove what `begin` made, unless the folder holds results by now."""
        if self.folder is None or any(p.name != CONFIG for p in self.folder.iterdir()):
            return
        for path in self._new_folders:
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)


def lock(path: Path, busy: str) -> TextIO:
    """Take a file for this process, until the file is closed or the process ends.

    Args:
        path: of the file; made where it is missing.
        busy: the error where another process has it.

    Returns:
        The open file.

    Raises:
        InputError: another process has it.
    """
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InputError(busy) from None
    return file
