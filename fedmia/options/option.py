"""Options: dataclass fields that carry their help, range and choices, checked when built.

Every section of the configuration and every plugin is a dataclass of such fields. The command
line, the YAML schema and the tables of `--list` are read off them, so an option is written once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from fedmia.options.errors import InputError, format_error, format_value, unknown_name

# Name of a limit, how it is said, and whether a value keeps it.
LIMITS: Sequence[tuple[str, str, Callable[[Any, Any], bool]]] = (
    ("gt", ">", operator.gt),
    ("ge", ">=", operator.ge),
    ("lt", "<", operator.lt),
    ("le", "<=", operator.le),
)


def option(
    default: Any,
    help: str,
    *,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    choices: Sequence[str] | None = None,
    gone: Mapping[str, str] | None = None,
    omitted: bool = False,
) -> Any:
    """A dataclass field with a help text and the range or the choices that its value must keep.

    `gone`: values that were choices once -> what one asks for instead. `omitted`: a tree of the
    settings leaves it out while it has its default.
    """
    limits: dict[str, Any] = {"help": help, "gt": gt, "ge": ge, "lt": lt, "le": le}
    limits |= {"choices": choices, "gone": gone, "omitted": omitted}
    return dataclasses.field(default=default, metadata=limits)


def options_of(name: str, kind: str, flat: bool = False) -> Any:
    """A dataclass field of the options of the plugin of `kind` that the option `name` beside it
    names: `--SECTION.NAME.OPTION`, or `--SECTION.OPTION` where they are `flat`."""
    about = {"options_of": name, "kind": kind, "flat": flat}
    return dataclasses.field(default_factory=dict, metadata=about)


class Options:
    """Base of dataclasses made of `option` fields: types, ranges and choices hold once built.

    Attributes:
        gone: options that it had once -> what one asks for instead.

    Raises:
        InputError: on construction, naming the field, its value and what is allowed.
    """

    gone: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for field, kind in option_fields(type(self)):
            value = getattr(self, field.name)
            where = f"{type(self).__name__}.{field.name}"
            check_type(where, value, kind)
            check_limits(where, value, field.metadata)


def option_fields(cls: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """The `option` fields of a dataclass with their resolved types, in order."""
    hints = _hints(cls)
    fields = dataclasses.fields(cls)
    return [(f, hints[f.name]) for f in fields if f.init and "help" in f.metadata]


@functools.cache  # they are strings to be evaluated, the same for every instance
def _hints(cls: type) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def union_members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type alone."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def check_type(where: str, value: Any, kind: Any) -> None:
    """Raise InputError unless `value` is of type `kind` (an int passes for a float)."""
    if not any(_is(value, one) for one in union_members(kind)):
        raise InputError(f"{where} must be {type_name(kind)}, got {value!r}")


def _is(value: Any, kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if kind is type(None):
        return value is None
    if origin is typing.Literal:
        return value in typing.get_args(kind)
    if origin is tuple:
        args = typing.get_args(kind)
        if not isinstance(value, tuple):
            return False
        if len(args) == 2 and args[1] is Ellipsis:
            return all(_is(v, args[0]) for v in value)
        return len(value) == len(args) and all(map(_is, value, args))
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, origin or kind)


def check_limits(where: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Raise InputError unless `value` (or each item of a tuple) is in its range and choices."""
    if value is None:
        return
    if isinstance(value, tuple):
        for item in value:
            check_limits(where, item, limits)
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} must be finite, got {value}")
    for key, word, holds in LIMITS:
        bound = limits.get(key)
        if bound is not None and not isinstance(value, str) and not holds(value, bound):
            raise InputError(f"{where} must be {word} {bound}, got {value!r}")
    if value in (limits.get("gone") or {}):
        raise InputError(f"{where} {value} is no more: {limits['gone'][value]}")
    choices = limits.get("choices")
    if choices and value not in choices:
        raise unknown_name(f"{where} value", str(value), choices)


def type_name(kind: Any) -> str:
    """A short name of a type for help texts and errors: `int`, `float or none`, `list of str`."""
    origin, kinds = typing.get_origin(kind), union_members(kind)
    if kind is type(None):
        return "none"
    if len(kinds) > 1:
        return " or ".join(map(type_name, kinds))
    if origin is typing.Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    if origin is tuple:
        args = typing.get_args(kind)
        if len(args) == 2 and args[1] is Ellipsis:
            return f"list of {type_name(args[0])}"
        return f"{len(args)} {type_name(args[0])}s"
    return getattr(kind, "__name__", str(kind))


def placeholder(kind: Any, metadata: Mapping[str, Any]) -> str:
    """What stands for a value of an option in help texts: its choices, else its type."""
    if metadata["choices"]:
        return f"{{{','.join(metadata['choices'])}}}"
    name = type_name(kind).removesuffix(" or none")
    if name.startswith("list"):
        return "LIST"
    return {"str": "TEXT", "bool": "BOOL"}.get(name, name.upper().replace(" ", "_"))


def describe_option(one: dataclasses.Field[Any]) -> str:
    """Help, default and range of an option."""
    limits = [f"{w} {one.metadata[k]}" for k, w, _ in LIMITS if one.metadata[k] is not None]
    default = [] if one.default == "" else [f"default {format_value(one.default)}"]
    notes = ", ".join([*default, *limits])
    about = format_error(one.metadata["help"])
    return f"{about} ({notes})" if notes else about
