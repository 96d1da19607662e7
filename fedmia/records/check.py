"""Whether a value read from a file is of the type that a record declares."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict


def mismatches(value: Any, kind: Any, where: str) -> Iterator[str]:
    """Every place where a value is not of its type.

    Args:
        value: as JSON holds it.
        kind: its type: a TypedDict, a list, a mapping with keys of text, a union, a plain type.
        where: names the value.

    Yields:
        The place, and what is wrong there: `attacks[0].auc: 'high' is no float`.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin in (Union, types.UnionType):
        if not any(next(mismatches(value, one, where), None) is None for one in inside):
            yield _wrong(where, value, kind)
    elif is_typeddict(kind):
        if not isinstance(value, dict):
            yield _wrong(where, value, kind)
            return
        hints, required = _keys(kind)
        yield from (f"{where}.{key}: missing" for key in required if key not in value)
        for key, one in value.items():
            if key in hints:
                yield from mismatches(one, hints[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}: unknown"
    elif origin in (list, Sequence):
        if not isinstance(value, list):
            yield _wrong(where, value, kind)
            return
        for at, one in enumerate(value):
            yield from mismatches(one, inside[0], f"{where}[{at}]")
    elif origin in (dict, Mapping):
        if not isinstance(value, dict):
            yield _wrong(where, value, kind)
            return
        for key, one in value.items():
            yield from mismatches(one, inside[1], f"{where}.{key}")
    elif not (isinstance(value, kind) or (kind is float and type(value) is int)):
        yield _wrong(where, value, kind)


@functools.cache
def _keys(kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The types of a TypedDict's keys, and the keys that it must have."""
    whole = get_type_hints(kind, include_extras=True)
    required = tuple(key for key, hint in whole.items() if get_origin(hint) is not NotRequired)
    return get_type_hints(kind), required


def _wrong(where: str, value: Any, kind: Any) -> str:
    name = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return f"{where}: {value!r:.40} is no {name}"
