"""What an audit has finished, kept so that a later failure loses nothing: one file an attack."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields
from pathlib import Path

import numpy as np

from fedmia.results import ScoredAttack

ARRAYS = (
    "scores_members",
    "scores_nonmembers",
    "known_members",
    "known_nonmembers",
    "features_members",
    "features_nonmembers",
)


class Finished:
    """Scores of finished attacks under a folder, or nowhere.

    Args:
        folder: `OUT/attacks`, or None to keep nothing.
        key: digest of all that decides the scores; files of another key are passed over.
    """

    def __init__(self, folder: Path | None, key: str) -> None:
        self.folder = folder
        self.key = key

    def _path(self, model: str, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{model}-{name}.npz"

    def load(self, model: str, name: str, options: str) -> ScoredAttack | None:
        """What was kept of attack `name` with `options` on `model`; None where nothing fits."""
        path = self._path(model, name)
        if path is None or not path.exists():
            return None
        try:
            # np.load would leave a broken archive's file open.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                about = json.loads(str(kept["about"]))
                if (about.pop("key"), about.pop("options")) != (self.key, options):
                    return None
                arrays = {n: kept[n] for n in ARRAYS if n in kept}
        except (
            OSError,
            EOFError,
            ValueError,
            KeyError,
            zipfile.BadZipFile,
        ):  # half a file: the attack runs again
            return None
        about["feature_names"] = tuple(about["feature_names"])
        return ScoredAttack(**about, **arrays)

    def save(self, model: str, name: str, options: str, scored: ScoredAttack) -> None:
        """Keep one finished attack; written whole or not at all."""
        path = self._path(model, name)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {f.name: getattr(scored, f.name) for f in fields(scored)}
        arrays = {n: values.pop(n) for n in ARRAYS if values[n] is not None}
        about = {k: v for k, v in values.items() if k not in ARRAYS}
        about |= {"key": self.key, "options": options}
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)
        partial.rename(path)
