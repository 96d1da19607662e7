"""Results on disk, for a run that is resumed: safetensors with JSON in them, never pickle."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import save_file

from fedmia import records
from fedmia.records import client_rows, defence_rows, privacy, rows
from fedmia.settings.options import check_type, type_hints
from fedmia.storage.durable import make_folder, replacing
from fedmia.untrusted.tensors import read_safetensors
from fedmia.untrusted.text import parse_json

Result = TypeVar("Result")
RECORDS: Mapping[str, Any] = {  # what a file may name, and nothing else that is imported
    name: cls
    for module in (records, client_rows, defence_rows, privacy, rows)
    for name, cls in vars(module).items()
    if dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__
}


class Archive:
    """Results under a folder, one file each, by name.

    Args:
        folder: None to keep nothing.
        key: digest of what decides the results; files of another key are passed over.
    """

    def __init__(self, folder: Path | None, key: str = "") -> None:
        self.folder, self.key = folder, key

    def once(self, name: str, call: Callable[[], Result], key: str = "") -> Result:
        """The result of that name, computed only where none is kept.

        Args:
            name: of the result.
            call: computes it; a result of None is not kept.
            key: a result of another key does not count; it is added to that of the archive.

        Returns:
            The result.
        """
        result: Result | None = self.load(name, key)
        if result is None:
            result = call()
            if result is not None:
                self.save(name, result, key)
        return result

    def load(self, name: str, key: str = "") -> Any:
        """Read a result.

        Args:
            name: of the result.
            key: of the result, added to that of the archive.

        Returns:
            The result; None where there is none, it has another key, or it is damaged.
        """
        if self.folder is None or not (path := self._path(name)).exists():
            return None
        try:
            arrays, texts = read_safetensors(path, "numpy")
            about = parse_json(texts["about"])
            return unpack(about["tree"], arrays) if about["key"] == [self.key, key] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # made anew

    def save(self, name: str, value: Any, key: str = "") -> None:
        """Keep a result; its file is on the disk, whole, when this returns.

        Args:
            name: of the result.
            value: plain values, arrays and records of `fedmia.records`.
            key: of the result, added to that of the archive.

        Raises:
            DiskError: it cannot be written, or the folder above that of the archive is gone.
        """
        if self.folder is None:
            return
        arrays: dict[str, np.ndarray] = {}
        about = {"key": [self.key, key], "tree": pack(value, arrays)}
        make_folder(self.folder, self.folder.parent)
        with replacing(self._path(name)) as (partial,):
            save_file(arrays, partial, {"about": json.dumps(about)})

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        safe = "".join(c if c.isalnum() or c in "-_." else "+" for c in name)
        return self.folder / f"{safe}.safetensors"


def pack(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Turn a value into JSON and arrays.

    Args:
        value: plain values, arrays and records of `fedmia.records`, in one another.
        arrays: gets the arrays, by names that stand in their places.

    Returns:
        The value as JSON has it.

    Raises:
        TypeError: the value holds something else.
    """
    if RECORDS.get(type(value).__name__) is type(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"of": type(value).__name__, "is": {n: pack(v, arrays) for n, v in fields.items()}}
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        return {"array": name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [pack(v, arrays) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[pack(k, arrays), pack(v, arrays)] for k, v in value.items()]}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be kept")


def unpack(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Undo `pack`.

    Args:
        tree: what `pack` returned.
        arrays: name -> array.

    Returns:
        The value.

    Raises:
        LookupError, TypeError, ValueError: `pack` returned no such tree.
    """
    if not isinstance(tree, dict):
        return tree
    if "of" in tree:
        cls = RECORDS.get(tree["of"])
        if cls is None:
            raise ValueError(f"'{tree['of']}' is no record")
        values = {n: unpack(v, arrays) for n, v in tree["is"].items()}
        kinds = type_hints(cls)
        for name, value in values.items():
            check_type(f"{tree['of']}.{name}", value, kinds[name])
        return cls(**values)
    if "array" in tree:
        return arrays[tree["array"]]
    if "dict" in tree:
        return {unpack(k, arrays): unpack(v, arrays) for k, v in tree["dict"]}
    ((kind, inside),) = tree.items()
    return (tuple if kind == "tuple" else list)(unpack(v, arrays) for v in inside)
