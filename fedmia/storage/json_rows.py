"""Rows as strict JSON and back: what `report.json` holds, and the check of what it may hold."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from fedmia.settings.values import escape_name

R = TypeVar("R")
EXACT = ("config", "choices", "delta")  # asked for, chosen or assumed: no measurement


def to_json(value: Any, key: str = "", *, exact: bool = False) -> Any:
    """A row, or any value of one, in strict JSON types.

    Measured floats are rounded to 6 decimals, a threshold to 6 digits, so that reruns compare
    equal; what was asked for stands as it was given.

    Args:
        value: a row, or a value of one.
        key: under which it stands; it may name an exact value.
        exact: whether floats keep all digits.

    Returns:
        Dictionaries, lists, strings, numbers, booleans and None, which also stands for what is not
        finite.
    """
    exact = exact or key in EXACT
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        omitted = _omitted(type(value))
        value = {k: v for k, v in fields.items() if v is not None or k not in omitted}
    if isinstance(value, Mapping):
        return {escape_name(str(k)): to_json(v, str(k), exact=exact) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v, key, exact=exact) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if exact:
            return value
        # A threshold may be tiny, and six decimals would turn it into 0.
        return float(f"{value:.6g}") if key.startswith("threshold") else round(value, 6)
    return value if value is None or isinstance(value, bool | int) else escape_name(str(value))


def from_json(kind: type[R], value: Any, where: str) -> R:
    """The row that JSON holds.

    Args:
        kind: class of the row.
        value: as JSON holds it.
        where: names the value, such as `report`.

    Returns:
        The row.

    Raises:
        ValueError: a field that is missing, unknown or of another type, and its place:
            `report.attacks[0].auc: 'high' is no float`. A field that is `omitted` may be missing.
    """
    return cast(R, _read(kind, value, where))


def _read(kind: Any, value: Any, where: str) -> Any:
    """A value of any type that a row may have."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        if value is None and type(None) in inside:
            return None
        (bare,) = (one for one in inside if one is not type(None))
        return _read(bare, value, where)
    if dataclasses.is_dataclass(kind):
        return _row(kind, value, where)
    if origin in (list, Sequence) and isinstance(value, list):
        return [_read(inside[0], one, f"{where}[{at}]") for at, one in enumerate(value)]
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {key: _read(inside[1], one, f"{where}.{key}") for key, one in value.items()}
    if origin is None and _is_a(value, kind):
        return value
    name = kind.__name__ if isinstance(kind, type) and not inside else str(kind)
    raise ValueError(f"{where}: {value!r:.40} is no {name}")


def _row(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {value!r:.40} is no {kind.__name__}")
    hints = _hints(kind)
    missing = hints.keys() - value - _omitted(kind)
    for wrong, names in (("missing", missing), ("unknown", value.keys() - hints)):
        for name in sorted(names):
            raise ValueError(f"{where}.{name}: {wrong}")
    present = {k: hint for k, hint in hints.items() if k in value}
    return kind(**{k: _read(hint, value[k], f"{where}.{k}") for k, hint in present.items()})


def _is_a(value: Any, kind: Any) -> bool:
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, kind) or (kind is float and type(value) is int)


@functools.cache
def _omitted(kind: Any) -> frozenset[str]:
    """The fields that are left out where they are None."""
    fields = dataclasses.fields(kind)
    return frozenset(
        f.name for f in fields if "field" in f.metadata and f.metadata["field"].omitted
    )


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a row's fields, in their order."""
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in dataclasses.fields(kind)}
