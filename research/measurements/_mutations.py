"""Random changes to honest files: every one decided by a generator, so a seed repeats them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

EDGE = 4096  # bytes at either end, where headers and directories lie
NUMBERS = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**12,
    10**400,
    1e308,
    "",
    "x" * 5000,
    "../../outside/keep",
    "/etc/passwd",
    [],
    {},
    [[[]]],
    "os:system",
    "\u0000",
    ["a"] * 50,
    {"name": {"name": []}},
    "nan",
)
Change = Callable[[bytes, np.random.Generator], bytes]


def change_bytes(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """A changed copy, and the name of the change."""
    name = str(rng.choice(list(CHANGES)))
    return name, CHANGES[name](data, rng)


def _at(data: bytes, rng: np.random.Generator) -> int:
    """A place: one of three times anywhere, else near either end."""
    if not data:
        return 0
    near = min(EDGE, len(data))
    where = int(rng.integers(3))
    return int(
        (rng.integers(len(data)), rng.integers(near), len(data) - 1 - rng.integers(near))[where]
    )


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: _at(data, rng)]


def _flip(data: bytes, rng: np.random.Generator) -> bytes:
    copy = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        if copy:
            copy[_at(data, rng)] ^= 1 << int(rng.integers(8))
    return bytes(copy)


def _scramble(data: bytes, rng: np.random.Generator) -> bytes:
    at, length = _at(data, rng), int(rng.integers(1, 64))
    return data[:at] + rng.bytes(length) + data[at + length :]


def _remove(data: bytes, rng: np.random.Generator) -> bytes:
    at = _at(data, rng)
    return data[:at] + data[at + int(rng.integers(1, 512)) :]


def _repeat(data: bytes, rng: np.random.Generator) -> bytes:
    at, length = _at(data, rng), int(rng.integers(1, 512))
    return data[:at] + data[at : at + length] * int(rng.integers(2, 50)) + data[at + length :]


def _promise(data: bytes, rng: np.random.Generator) -> bytes:
    """An integer of a header becomes one that promises much, or nothing."""
    at, number = _at(data, rng), int(rng.choice(np.array(NUMBERS, dtype=object)))
    size = int(rng.choice([2, 4, 8]))
    order = str(rng.choice(["little", "big"]))
    coded = (number % (1 << (8 * size))).to_bytes(size, order)  # type: ignore[arg-type]
    return data[:at] + coded + data[at + size :]


def _digits(data: bytes, rng: np.random.Generator) -> bytes:
    """A number that is written out becomes another: shapes in headers of text."""
    places = [i for i, c in enumerate(data[:100_000]) if 48 <= c <= 57]
    if not places:
        return _flip(data, rng)
    at = int(rng.choice(places))
    new = str(rng.choice(["9", "99999999", "-1", "0", "1e9", "999999999999999"])).encode()
    return data[:at] + new + data[at + 1 :]


CHANGES: dict[str, Change] = {
    "cut": _cut,
    "flip": _flip,
    "scramble": _scramble,
    "remove": _remove,
    "repeat": _repeat,
    "promise": _promise,
    "digits": _digits,
}


def change_json(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """A copy with one value, key or depth changed."""
    tree = json.loads(data)
    return "json", json.dumps(change_tree(tree, rng)).encode()


def change_tree(tree: Any, rng: np.random.Generator) -> Any:
    """The tree with one of its values replaced, dropped, or wrapped."""
    places: list[tuple[Any, Any]] = []

    def collect(value: Any) -> None:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in list(inner):
            places.append((value, key))
            if isinstance(one, dict | list):
                collect(one)

    if not isinstance(tree, dict | list) or not tree:
        return VALUES[int(rng.integers(len(VALUES)))]
    collect(tree)
    holder, key = places[int(rng.integers(len(places)))]
    kind = int(rng.integers(4))
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[str(rng.choice(["__class__", "name", "../x", "", "x" * 300]))] = holder.pop(key)
    elif kind == 2:
        for _ in range(int(rng.choice([1, 100, 900]))):
            holder[key] = [holder[key]]
    else:
        holder[key] = VALUES[int(rng.integers(len(VALUES)))]
    return tree


def safetensors_file(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of this header, which may say another length than it has."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data
