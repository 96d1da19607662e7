"""The files that a list names: found by their paths, however these are spelt, or guessed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath

from fedmia.settings.errors import opt, suggest_nearest
from fedmia.settings.values import escape_name

MOST_NAMES = 10_000  # in a folder, that are compared with one that it lacks
MOST_FOLDERS = 1_000  # below that of the list, in which missing files are looked for


class ListedFiles:
    """Finds the files that a list names: each folder is read once.

    Args:
        path: of the list.
        data_dir: to which paths are relative; None: to the folder of the list.
    """

    def __init__(self, path: Path, data_dir: Path | None) -> None:
        self.base = str(path.parent if data_dir is None else data_dir)
        self.moves = data_dir is not None
        self._names = dict[str, dict[str, str]]()

    def find(self, text: str) -> tuple[Path | None, bool]:
        """The file that a cell names; and whether it lies under `--data-dir` by the end of its
        path alone, as of a list from another machine."""
        if not text or "\0" in text:
            return None, False
        for spelling in dict.fromkeys((text, text.replace("\\", "/"))):
            if file := self._stored(self._whole(spelling)):
                return file, False
        parts = PureWindowsPath(text).parts
        for at in range(1, len(parts) if self.moves and is_absolute(text) else 0):
            if file := self._stored(os.path.join(self.base, *parts[at:])):
                return file, True
        return None, False

    def explain(self, text: str) -> str:
        """Why a file is not found, as the end of an error: its folder, and the nearest name."""
        path = self._whole(text.replace("\\", "/"))
        if not self.moves and is_absolute(text):
            return f"; of files that lie elsewhere by now, {opt('data.dir', 'FOLDER')} names it"
        parts = Path(os.path.normpath(path)).parts
        folder = parts[0]
        for part in parts[1:]:
            names = self._list(folder)
            if escape_name(part) not in names:
                return (
                    f"; {folder} has no {quote(part)}{suggest_nearest(part, [*names][:MOST_NAMES])}"
                )
            folder = os.path.join(folder, names[escape_name(part)])
        return ""

    def guess(self, texts: Sequence[str]) -> str | None:
        """The first folder below that of the list in which all files lie by their paths, or by the
        ends of those from another machine."""
        parts = PureWindowsPath(texts[0]).parts
        starts = range(1, len(parts)) if is_absolute(texts[0]) else range(1)
        folders = [one for one, *_ in itertools.islice(os.walk(self.base), MOST_FOLDERS)]
        ends = ((folder, parts[at:]) for at in starts for folder in folders)  # the longest first
        for folder, end in ends:
            if os.path.isfile(os.path.join(folder, *end)):
                others = ListedFiles(Path(folder), Path(folder))
                return folder if all(others.find(text)[0] for text in texts) else None
        return None

    def _whole(self, text: str) -> str:
        return os.path.join(self.base, os.path.expanduser(text) if text[:2] == "~/" else text)

    def _stored(self, path: str) -> Path | None:
        """A file as its folders spell it: an accent may be a letter or a mark."""
        path = os.path.normpath(path)
        if os.path.isfile(path):
            return Path(path)
        if path.isascii():
            return None
        folder, *parts = Path(path).parts if os.path.isabs(path) else (".", *Path(path).parts)
        for part in parts:
            if (name := self._list(folder).get(escape_name(part))) is None:
                return None
            folder = os.path.join(folder, name)
        return Path(os.path.normpath(folder)) if os.path.isfile(folder) else None

    def _list(self, folder: str) -> dict[str, str]:
        """What lies in a folder: a name as it reads -> as it is stored."""
        if folder not in self._names:
            try:
                names = sorted(os.listdir(folder))
            except OSError:
                names = []
            self._names[folder] = {escape_name(name): name for name in names}
        return self._names[folder]


def is_absolute(text: str) -> bool:
    """Whether a path begins at a root, of this system or of Windows."""
    return os.path.isabs(text) or bool(PureWindowsPath(text).drive)


def quote(text: str) -> str:
    """A text of others between quotes: what a terminal shows of it, and not more than a line."""
    return f"'{''.join(c if c.isprintable() else '?' for c in text):.100}'"
