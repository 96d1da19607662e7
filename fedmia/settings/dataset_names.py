"""How settings name a data source: its plugin, and the path that some take."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from fedmia.settings import registry, session
from fedmia.settings.errors import InputError, unknown_name

LISTS = (".csv", ".tsv")  # suffixes of tables


def split_dataset(spec: str) -> tuple[str, str | None]:
    """Plugin and path of `digits`, `parquet:PATH`, `package.module:Class` or that with `:PATH`.

    Raises:
        InputError: an unknown data source, a path missing or one that the source does not take.
    """
    known = registry.names("dataset")
    name, _, after = spec.partition(":")
    path: str | None = after
    if name not in known:
        if Path(after).suffix.lower() in LISTS and Path(after).is_file():  # `csv` is Python's
            raise InputError(f"{spec}: a list of images is list:{after}")
        top, outside = name.partition(".")[0] or "?", ":" in spec
        if outside and top != session.MODULE:
            registry.search_working_folder()
            outside = importlib.util.find_spec(top) is not None
        if not outside:
            kinds = {".npz": "npz", ".parquet": "parquet", **dict.fromkeys(LISTS, "list")}
            kind = "folder" if Path(spec).is_dir() else kinds.get(Path(spec).suffix.lower())
            if kind is not None and Path(spec).exists():
                what = "a folder" if kind == "folder" else "a file"
                raise InputError(f"unknown dataset '{spec}'; {what} of this name is {kind}:{spec}")
            raise unknown_name("dataset", name, known)
        attribute, _, path = after.partition(":")
        name = f"{name}:{attribute}"
    takes = registry.load("dataset", name).takes_path
    if takes and not path:
        raise InputError(f"dataset '{spec}' needs a path: {name}:PATH")
    if path and not takes:
        raise InputError(f"dataset '{name}' takes no path, got '{spec}'")
    return name, path or None
