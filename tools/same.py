"""What differs between two folders of results: `python tools/same.py BEFORE AFTER`.

Each difference is a line: file, field, before, after, with tabs between. JSON, YAML, CSV and
parquet are compared field by field (in any order), rows by number, arrays bit by bit, texts and
pages line by line, other files, such as figures, by their bytes; 1 is not 1.0.

Left out is what differs between two runs of one program, and the last line counts it: fields, files
and rows of a table by their `metric` that IGNORED names; on a page TIMES; in a figure DIGEST, that
of its report. The paths of the two folders are `.`. It exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import zip_longest
from os.path import commonprefix
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
PICTURE = re.compile(r"(?<=data:image/png;base64,)[\w+/=]+")
DIGEST = re.compile(rb"tEXtReport\0[0-9a-f]{64}.{4}", re.DOTALL)
ABSENT = "(absent)"
Differences = Iterator[tuple[str, str, str] | None]  # field, before, after


def name_array(kind: str, shape: Any, content: bytes) -> str:
    """A name that two arrays share where they agree to the bit."""
    return f"{kind} {list(shape)} {hashlib.sha256(content).hexdigest()[:12]}"


def name_bytes(data: bytes) -> str:
    """The name of a figure, or of another file."""
    return name_array("bytes", [len(data)], DIGEST.sub(b"", data))


def read_page(text: str) -> list[str]:
    """The lines of a page, with its figures' names in their places."""
    text = PICTURE.sub(lambda found: name_bytes(base64.b64decode(found[0])), text)
    return TIMES.sub("(left out)", text).splitlines()


TEXTS: dict[str, Callable[[str], Any]] = {
    ".json": json.loads,
    ".jsonl": lambda text: [*map(json.loads, text.splitlines())],
    ".yaml": yaml.safe_load,
    ".csv": lambda text: [*csv.DictReader(io.StringIO(text))],
    ".html": read_page,
    **dict.fromkeys((".md", ".txt", ".log", ".svg", ".tex", ".xml"), str.splitlines),
}
BINARIES: dict[str, Callable[[bytes], Any]] = {
    ".parquet": lambda data: pq.read_table(io.BytesIO(data)).to_pylist(),
    ".safetensors": lambda data: {
        name: name_array(tensor["dtype"], tensor["shape"], tensor["data"])
        for name, tensor in sorted(deserialize(data), key=lambda named: named[0])
    },
    ".npz": lambda data: {
        name: name_array(array.dtype.str, array.shape, array.tobytes())
        for name, array in np.load(io.BytesIO(data)).items()
    },
}


def read(path: Path, root: Path) -> Any:
    """What a file below `root` holds, as dicts, lists and values."""
    if path.suffix not in TEXTS:
        return BINARIES.get(path.suffix, name_bytes)(path.read_bytes())
    text = path.read_text(encoding="utf-8").replace(str(root), ".")
    try:
        return TEXTS[path.suffix](text)
    except ValueError:  # not what its name says, such as JSON with more behind it
        return text.splitlines()


def is_ignored(name: Any, before: Any, after: Any) -> bool:
    """Whether a field that both hold, or a row of a table, differs between runs anyway."""
    metrics = {str(one.get("metric")) for one in (before, after) if isinstance(one, dict)}
    names = {str(name)} | (metrics if len(metrics) == 1 else set())
    return ABSENT not in (before, after) and any(map(IGNORED.fullmatch, names))


def shorten(before: str, after: str, room: int = 70) -> tuple[str, str]:
    """Both from shortly before they part."""
    start = max(0, len(commonprefix((before, after))) - room // 3)
    return before[start : start + room], after[start : start + room]


def compare(before: Any, after: Any, place: str = "") -> Differences:
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


def read_folder(folder: Path) -> dict[str, Any]:
    """What each file holds, by its path below the folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): read(path, folder) for path in files}


def main(arguments: list[str] | None = None) -> int:
    """Print a line a difference; 1 where there is one, 2 where a folder is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs=2, type=Path, metavar="FOLDER")
    folders = parser.parse_args(arguments).folders
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        parser.error(f"no such folder: {', '.join(missing)}")
    before, after = (read_folder(folder.resolve()) for folder in folders)
    differing = left_out = 0
    for file in sorted(before | after):
        sides = before.get(file, ABSENT), after.get(file, ABSENT)
        for line in [None] if is_ignored(Path(file).stem, *sides) else compare(*sides):
            differing, left_out = differing + bool(line), left_out + (not line)
            if line:
                print(file, *line, sep="\t")
    print(f"{differing} differences; {left_out} fields left out; files: {len(before | after)}")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
