"""Options: dataclass fields that carry their help, range and choices, checked when built.

Every section of the configuration and every plugin is a dataclass of such fields; one that adds
none to those of its base needs no decorator of its own. The command line, the YAML schema and the
tables of `--list` are read off them, so an option is written once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from fedmia.settings.errors import (
    InputError,
    format_value,
    option_error,
    unknown_value,
    wrong_value,
)

LARGEST = 3.4e38  # of float32, in which the tensors are
# Name of a limit, its sign in messages, and whether a value is within it.
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
    omitted: bool = False,
    hole: str = "",
    heading: str = "",
    of_pixels: bool = False,
    needs: Sequence[Any] = (),
) -> Any:
    """A dataclass field that is an option, with its help text and what its value may be.

    Args:
        default: its value where none is given.
        help: one line for `--help`.
        gt: the value must be greater; of a tuple each item.
        ge: the value must be as great or greater.
        lt: the value must be less.
        le: the value must be as small or smaller.
        choices: the only values that it may have.
        omitted: whether a tree of the settings leaves it out while it has its default.
        hole: what stands for the value in help; empty: its choices, or the name of its type.
        of_pixels: whether it is of pixels in [0, 1]; the error for one of 0 to 255 converts it.
        heading: of help under which it stands where its command names none; empty: the first.
        needs: the option beside it without which it has no effect, and its values under which it
            has one; without values any but none, 0 and false.

    Returns:
        The dataclass field.
    """
    limits: dict[str, Any] = {"help": help, "gt": gt, "ge": ge, "lt": lt, "le": le}
    limits |= {"choices": choices, "omitted": omitted, "hole": hole, "needs": needs}
    limits |= {"of_pixels": of_pixels, "heading": heading}
    return dataclasses.field(default=default, metadata=limits)


class Options:
    """Base of dataclasses made of `option` fields: types, ranges and choices hold once built.

    Raises:
        InputError: on construction, naming the option, its value and what is allowed, as of
            `fedmia.settings.errors.option_error`.
    """

    def __post_init__(self) -> None:
        for field, kind in option_fields(type(self)):
            value = getattr(self, field.name)
            try:
                check_type(field.name, value, kind)
                check_limits(field.name, value, field.metadata)
            except InputError as error:
                raise option_error(self, str(error)) from None

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build of the values that are given, with what these imply written out.

        Raises:
            InputError: as on construction.
        """
        return cls(**values)


def option_fields(cls: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """The `option` fields of a dataclass with their resolved types, in order.

    Raises:
        InputError: the class lacks @dataclass, as plugins from outside may.
    """
    if not has_its_options(cls):
        raise InputError(f"{cls.__name__} must be a dataclass: it lacks @dataclass")
    hints = type_hints(cls)
    fields = dataclasses.fields(cls)
    return [(f, hints[f.name]) for f in fields if f.init and "help" in f.metadata]


@functools.cache
def has_its_options(cls: type) -> bool:
    """Whether a class is a dataclass with every option that it and its bases declare.

    One that declares none is a dataclass as its base is.
    """
    own = getattr(cls, "__dataclass_fields__", None)
    return own is not None and all(
        name in own
        for one in cls.__mro__
        for name, value in {**vars(one), **vars(one).get("__dataclass_fields__", {})}.items()
        if isinstance(value, dataclasses.Field) and "help" in value.metadata
    )


@functools.cache  # they are strings to be evaluated, the same for every instance
def type_hints(cls: type) -> Mapping[str, Any]:
    """Type of each field of a dataclass, by name."""
    return typing.get_type_hints(cls)


def union_members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type alone."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def check_type(where: str, value: Any, kind: Any) -> None:
    """Refuse a value of a wrong type. An int is accepted for a float.

    Args:
        where: the option, for the error.
        value: to check.
        kind: the type that it must have.

    Raises:
        InputError: the value has another type.
    """
    if not any(_matches_type(value, one) for one in union_members(kind)):
        raise wrong_value(where, value, type_name(kind))


def _matches_type(value: Any, kind: Any) -> bool:
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
            return all(_matches_type(v, args[0]) for v in value)
        return len(value) == len(args) and all(map(_matches_type, value, args))
    if origin in (Sequence, Mapping):
        if isinstance(value, str) or not isinstance(value, origin):
            return False
        inside = union_members(typing.get_args(kind)[-1])
        items = value.values() if isinstance(value, Mapping) else value
        return Any in inside or all(any(_matches_type(v, k) for k in inside) for v in items)
    if kind in (int, float):
        fits = kind is int or not isinstance(value, int) or abs(value) <= sys.float_info.max
        return isinstance(value, (int, kind)) and not isinstance(value, bool) and fits
    return isinstance(value, origin or kind)


def check_limits(where: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Refuse a value, or an item of a tuple, that is out of its range or its choices.

    Args:
        where: the option, for the error.
        value: to check.
        limits: metadata of the option's field: `gt`, `ge`, `lt`, `le`, `choices`, `of_pixels`.

    Raises:
        InputError: the value is not finite, out of range, or none of the choices.
    """
    if value is None:
        return
    if isinstance(value, tuple):
        for item in value:
            check_limits(where, item, limits)
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong_value(where, value, "finite")
    if isinstance(value, float) and abs(value) > LARGEST:
        raise wrong_value(where, value, f"at most {LARGEST:g} in size")
    if isinstance(value, int) and abs(value) >= 1 << 63:  # arrays hold no larger ones
        raise InputError(f"{where}: {value.bit_length()} bits, must be less than 2^63 in size")
    for key, word, holds in LIMITS:
        bound = limits.get(key)
        if bound is not None and not isinstance(value, str) and not holds(value, bound):
            # Data sheets often print what is of pixels in 0..255.
            scaled = key == "le" and limits.get("of_pixels") and value <= 255
            why = f": give {value:g}/255 = {value / 255:.3f}" if scaled else ""
            raise wrong_value(where, value, f"{word} {bound}{why}")
    choices = limits.get("choices")
    if choices and value not in choices:
        raise unknown_value(where, str(value), choices)


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
    """What stands for a value of an option in help texts.

    Args:
        kind: the option's type.
        metadata: of its field.

    Returns:
        What it says itself, else its choices, else the name of its type.
    """
    if metadata["hole"]:
        return str(metadata["hole"])
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
    about: str = one.metadata["help"]
    return f"{about} ({notes})" if notes else about
