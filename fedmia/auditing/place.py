"""The folder of an audit's results: refused where occupied, made, given up when nothing ran."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedmia.errors import InputError
from fedmia.runtime.environment import describe
from fedmia.runtime.outfolder import CONFIG, make, refuse_occupied

# Another list of attacks adds to those finished, and so does a sweep.
MORE = ("attacks", "attack")


@dataclass
class Place:
    """`--out`, or nowhere.

    Args:
        folder: None to keep nothing.
        tree: the audit's options; what the folder holds must be an audit of the same.

    Raises:
        InputError: the folder is a file, holds anything else, or cannot be made.
    """

    folder: Path | None
    tree: Mapping[str, Any]
    _made: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        if not self.folder.exists():
            above = next(p for p in self.folder.absolute().parents if p.exists())
            if not above.is_dir() or not os.access(above, os.W_OK):
                what = "is no folder" if not above.is_dir() else "cannot be written to"
                raise InputError(f"--out '{self.folder}' cannot be made: '{above}' {what}")
        refuse_occupied(self.folder, "another run or audit", self._same)

    def _same(self, file: Path) -> bool:
        """Whether a config.yaml is of this audit."""
        try:
            before = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            return False
        if not isinstance(before, dict):
            return False
        sweeps = before.pop("sweep", ""), self.tree["sweep"]
        skipped = (*MORE, "_run", "sweep")
        mine, theirs = (
            {k: v for k, v in tree.items() if k not in skipped} for tree in (self.tree, before)
        )
        return mine == theirs and sweeps[0] in (None, sweeps[1])

    def under(self, name: str) -> Path | None:
        """A file or folder in it, None where nothing is kept."""
        return None if self.folder is None else self.folder / name

    def begin(self) -> None:
        """Make the folder, and write down what it will hold the results of.

        Raises:
            InputError: it cannot be made.
        """
        if self.folder is None:
            return
        folder = self.folder.absolute()
        self._made = [p for p in (folder, *folder.parents) if not p.exists()]
        config = folder / CONFIG
        if not config.exists():
            self._made.insert(0, config)
        tree = dict(self.tree) | {"_run": describe()}
        make(self.folder, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))

    def give_up(self) -> None:
        """Remove what `begin` made, unless something worth keeping lies there by now."""
        if self.folder is None or any(p.name != CONFIG for p in self.folder.iterdir()):
            return
        for path in self._made:
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
