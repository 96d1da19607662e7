"""What differs between two folders of results: `python scripts/same.py BEFORE AFTER [--only TEXT]`.

Each difference is a line: file, field, before, after, with tabs between. JSON, YAML, CSV and
parquet are compared field by field, a row by its number, and 1 is not 1.0; arrays bit by bit; texts
and pages line by line; other files, such as figures, by their bytes.

Left out is what differs between two runs of one program, and the last line counts it: fields, and
rows of a table by their `metric`, that IGNORED names, and on a page what TIMES names. The paths of
the two folders are `.` wherever they stand. The exit code is 1 where anything differs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from safetensors import deserialize

IGNORED = re.compile(
    r"(\w+_)?(s|seconds|minutes)|timing|began|ended|versions|hardware|commit|cpu|cores|pid"
)
TIMES = re.compile(
    r"<dl>(?:(?!</dl>).)*<dt>(?:total_s|commit|cpu)</dt>.*?</dl>|\(commit \w+\)", re.DOTALL
)
ABSENT = "(absent)"
Difference = tuple[str, str, str]  # field, before, after


def name_array(kind: str, shape: Any, content: bytes) -> str:
    """A name that two arrays share where they agree to the bit."""
    return f"{kind} {list(shape)} {hashlib.sha256(content).hexdigest()[:12]}"


def read_csv(text: str) -> Any:
    """The columns, then the rows."""
    rows = csv.DictReader(io.StringIO(text))
    return [list(rows.fieldnames or ()), *rows]


TEXTS: dict[str, Callable[[str], Any]] = {
    ".json": json.loads,
    ".jsonl": lambda text: [*map(json.loads, text.splitlines())],
    ".yaml": yaml.safe_load,
    ".csv": read_csv,
    ".html": lambda text: TIMES.sub("(left out)", text).splitlines(),
    **dict.fromkeys((".md", ".txt", ".log", ".svg", ".tex", ".xml"), str.splitlines),
}
BINARIES: dict[str, Callable[[bytes], Any]] = {
    ".parquet": lambda data: pq.read_table(io.BytesIO(data)).to_pylist(),
    ".safetensors": lambda data: {
        name: name_array(tensor["dtype"], tensor["shape"], tensor["data"])
        for name, tensor in deserialize(data)
    },
    ".npz": lambda data: {
        name: name_array(array.dtype.str, array.shape, array.tobytes())
        for name, array in np.load(io.BytesIO(data)).items()
    },
}


def read(path: Path, root: Path) -> Any:
    """What a file below `root` holds, as dicts, lists and values."""
    data = path.read_bytes()
    if path.suffix in TEXTS:
        return TEXTS[path.suffix](data.decode().replace(str(root), "."))
    return BINARIES.get(path.suffix, lambda data: name_array("bytes", [len(data)], data))(data)


def is_ignored(name: Any, before: Any, after: Any) -> bool:
    """Whether a field that both hold, or a row of a table, differs between runs anyway."""
    names = {one.get("metric") if isinstance(one, dict) else None for one in (before, after)}
    metric = names.pop() if len(names) == 1 else None
    texts = [one for one in (name, metric) if isinstance(one, str)]
    return ABSENT not in (before, after) and any(map(IGNORED.fullmatch, texts))


def shorten(before: str, after: str, room: int = 70) -> tuple[str, str]:
    """Both from shortly before they part."""
    start = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    start = max(0, start - room // 3)
    return before[start : start + room], after[start : start + room]


def compare(before: Any, after: Any, place: str = "") -> Iterator[Difference | None]:
    """Differences of two trees of dicts, lists and values; None for each field left out."""
    if isinstance(before, dict) and isinstance(after, dict):
        fields = [(n, before.get(n, ABSENT), after.get(n, ABSENT)) for n in {**before, **after}]
    elif isinstance(before, list) and isinstance(after, list):
        fields = [(i, *both) for i, both in enumerate(zip_longest(before, after, fillvalue=ABSENT))]
    else:
        if repr(before) != repr(after):  # NaN is NaN
            yield (place, *shorten(repr(before), repr(after)))
        return
    for name, left, right in fields:
        if is_ignored(name, left, right):
            yield None
        else:
            yield from compare(left, right, f"{place}.{name}".lstrip("."))


def compare_folders(*folders: Path, only: str = "") -> Iterator[tuple[str, Difference | None]]:
    """Each file's differences, of files whose path below the two folders holds `only`."""
    files = {
        str(path.relative_to(folder))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name in sorted(name for name in files if only in name):
        paths = [folder / name for folder in folders]
        if all(path.is_file() for path in paths):
            trees = [read(path, folder) for path, folder in zip(paths, folders, strict=True)]
            yield from ((name, difference) for difference in compare(*trees))
        else:
            before, after = ("present" if path.is_file() else ABSENT for path in paths)
            yield name, ("", before, after)


def main(arguments: list[str] | None = None) -> int:
    """Print a line a difference; 1 where there is one, 2 where a folder is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs=2, type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", help="compare files whose path holds this text")
    given = parser.parse_args(arguments)
    for folder in given.folders:
        if not folder.is_dir():
            parser.error(f"{folder}: no such folder")
    results = [*compare_folders(*(path.resolve() for path in given.folders), only=given.only)]
    lines = [(name, *difference) for name, difference in results if difference is not None]
    print(*("\t".join(line) for line in lines), sep="\n", end="\n" * bool(lines))
    print(f"{len(lines)} differences; {len(results) - len(lines)} fields left out (IGNORED)")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
