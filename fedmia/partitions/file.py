"""The clients of given images: what any other partitioner dealt, read from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedmia.data.base import Dataset
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet, IntArray
from fedmia.partitions.base import OwnerPartition
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt, option_error
from fedmia.untrusted.arrays import read_npy
from fedmia.untrusted.text import read_csv, read_json

COLUMNS = ["image", "client"]


@dataclass(frozen=True)
class File(OwnerPartition):
    """A file says which client holds which image: JSON, CSV or .npy (docs/howto/partitions.md)."""

    takes_path: ClassVar[bool] = True

    path: str | None = option(None, "file of the clients' images, .json, .csv or .npy")
    whole: bool = option(
        False, "clients train on all their images, and non-members are images of no client"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path and Path(self.path).suffix not in READERS:
            raise option_error(
                self,
                f"path: {self.path} is no .json, .csv or .npy file (a pickle is never loaded; "
                "docs/howto/partitions.md shows how to write one of these)",
            )

    def check(self, source: Dataset, name: str) -> None:
        super().check(source, name)
        self._path_or_refuse()

    def trains_on_all(self) -> bool:
        return self.whole

    def kinds(self, data: ImageSet | EncodedSet, clients: int) -> IntArray:
        """The client of each image, -1 where the file names none or one >= `clients`.

        Raises:
            InputError: no such file, one of another form, fewer clients than asked for (or more,
                where they train on all), an image that is not there, or one with two clients.
        """
        owners = np.full(len(data), -1, np.int64)
        parts = self._read_parts()
        if len(parts) < clients or (self.whole and len(parts) > clients):
            more = "more" if len(parts) < clients else "fewer, whose images would be non-members"
            raise self._wrong(
                f"has {len(parts)} clients, {opt('federation.clients', clients)} asks for {more}"
            )
        for client, part in enumerate(parts):
            outside = part[(part < 0) | (part >= len(data))]
            if len(outside):
                raise self._wrong(
                    f"gives client {client} image {outside[0]}; those of {data.name} are "
                    f"0-{len(data) - 1}"
                )
            twice = part[owners[part] >= 0]
            if len(twice):
                other = owners[twice[0]]
                raise self._wrong(f"gives image {twice[0]} to clients {other} and {client}")
            if len(np.unique(part)) < len(part):
                values, counts = np.unique(part, return_counts=True)
                raise self._wrong(f"gives client {client} image {values[counts > 1][0]} twice")
            owners[part] = client
        return np.where(owners < clients, owners, -1)

    def _read_parts(self) -> list[IntArray]:
        """Images of each client, as the file has them."""
        path = self._path_or_refuse()
        try:
            return READERS[path.suffix](path)
        except FileNotFoundError:
            raise self._wrong("does not exist") from None
        except (OSError, EOFError, RecursionError, OverflowError) as error:
            raise self._wrong(f"cannot be read: {' '.join(str(error).split())}") from None
        except ValueError as error:
            raise self._wrong(" ".join(str(error).split())) from None

    def _path_or_refuse(self) -> Path:
        if not self.path:
            raise InputError(f"partition file needs a path: {opt('partition', 'file:PATH')}")
        return Path(self.path)

    def _wrong(self, why: str) -> InputError:
        return InputError(f"partition file: {self.path} {why}")


def _read_json(path: Path) -> list[IntArray]:
    """`[[0, 5], [1, 2]]`, or the same by client; clients that are numbers are put in order."""
    try:
        tree = read_json(path)
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if isinstance(tree, dict):
        numbers = all(name.isascii() and name.isdigit() for name in tree)
        tree = [tree[name] for name in (sorted(tree, key=int) if numbers else tree)]
    if not isinstance(tree, list) or not all(isinstance(part, list) for part in tree):
        raise ValueError("must hold a list of image numbers for each client")
    return [_whole(part, f"client {client}") for client, part in enumerate(tree)]


def _read_csv(path: Path) -> list[IntArray]:
    """Lines of an image and its client under the header `image,client`."""
    head, *lines = read_csv(path) or [[]]
    other = [s for s in ";\t" if [n.strip() for n in "".join(head).split(s)] == COLUMNS]
    if other:
        raise ValueError(f"separates its columns by {other[0]!r}, and must by a comma")
    if [name.strip() for name in head] != COLUMNS:
        raise ValueError(f"must begin with the line {','.join(COLUMNS)}, got {','.join(head)!r}")
    for at, line in enumerate(lines, 2):
        if len(line) != 2 or not all(v.strip().lstrip("-").isdecimal() for v in line):
            raise ValueError(f"must hold two whole numbers a line; line {at} is {','.join(line)!r}")
    rows = np.array([[int(v) for v in line] for line in lines], dtype=np.int64).reshape(-1, 2)
    return _group_by_client(rows[:, 0], rows[:, 1])


def _read_npy(path: Path) -> list[IntArray]:
    """One client an image, (N,): -1 for none."""
    try:
        clients = read_npy("it", path)
    except ValueError as error:
        raise ValueError(f"is no .npy file of integers: {error}") from None
    if clients.ndim != 1 or clients.dtype.kind not in "iu":
        raise ValueError("must hold one integer an image, (N,): its client, or -1")
    return _group_by_client(np.arange(len(clients)), clients.astype(np.int64))


def _group_by_client(images: IntArray, clients: IntArray) -> list[IntArray]:
    """Images of clients 0 to the greatest that is named; a negative one is none."""
    count = int(clients.max(initial=-1)) + 1
    if count > len(images):
        raise ValueError(f"names client {count - 1}, and has {len(images)} images only")
    order = np.argsort(clients, kind="stable")
    ends = np.searchsorted(clients[order], np.arange(count + 1))
    return np.split(images[order], ends)[1:-1]


def _whole(values: list[Any], whose: str) -> IntArray:
    wrong = [v for v in values if not isinstance(v, int) or isinstance(v, bool)]
    if wrong:
        raise ValueError(f"must hold image numbers; {whose} has {wrong[0]!r:.60}")
    return np.array(values, dtype=np.int64)


READERS = {".json": _read_json, ".csv": _read_csv, ".npy": _read_npy}
