"""What a field of a record is: a number, a part of one, or what identifies numbers.

A record (`fedmia.report.rows`) declares its fields once, by `Annotated`; whatever lists numbers
reads the declarations. A field of type `float` or `int` is a number without any mark. `X_ci` and
`X_ci_simultaneous` are the intervals of the number `X`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

ENDS = {
    "_ci": ("low", "high"),
    "_ci_simultaneous": ("low_simultaneous", "high_simultaneous"),
}


@dataclass(frozen=True)
class Column:
    """The value fills a column of all numbers of its record, and of the records inside it."""

    name: str


@dataclass(frozen=True)
class At:
    """Columns, and what fills them, of all numbers of the records that the field holds."""

    columns: Mapping[str, str]

    def __hash__(self) -> int:
        return hash(tuple(self.columns.items()))


@dataclass(frozen=True)
class Keyed:
    """A mapping whose keys fill a column, or name the metric where the column is `metric`."""

    column: str


@dataclass(frozen=True)
class Part:
    """The value belongs to the number in field `of` and fills these columns of its row."""

    of: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Number:
    """A number, and where people meet it beside report.json and the table.

    Attributes:
        metric: what the table calls it; empty: as its field.
        label: its line in the page's table of attacks; empty: it has none there.
        only: (field, value) of its record without which the page leaves it out.
        head: of its column in the terminal's table of attacks; empty: it has none there.
        place: of that column among the others, from the left.
        log: name under which observers hear of it, made of the columns of its row (`{attack}`),
            of `{of}`, its subject and control, and of `{_control}`, empty of what is no control:
            without either, controls are not logged. Empty: observers do not hear of it.
        log_ends: likewise of the ends of its simultaneous interval, with `{end}`: low, high.
        at: of a mapping the one key that the terminal and observers get.
    """

    metric: str = ""
    label: str = ""
    only: tuple[str, str] = ("", "")
    head: str = ""
    place: int = 9
    log: str = ""
    log_ends: str = ""
    at: str = ""


@dataclass(frozen=True)
class Indexed:
    """A list of records that nothing in them tells apart: their place in it ends the subject."""


@dataclass(frozen=True)
class Aside:
    """No measurement: a list of identifiers, or what was only asked for."""


@dataclass(frozen=True)
class Field:
    """A field of a record as its annotation declares it.

    Attributes:
        record: the type of the record, or of each of the records, that it holds; None: of none.
        numeric: it holds a number, or several.
        number: what is declared of it.
        parts: of the number: (field, columns) each.
    """

    name: str
    record: Any = None
    number: Number = field(default_factory=Number)
    numeric: bool = False
    column: str | None = None
    at: Mapping[str, str] = field(default_factory=dict)
    keyed: str | None = None
    indexed: bool = False
    part: Part | None = None
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def metric(self) -> str:
        """What the table calls its number."""
        return self.number.metric or self.name

    def value(self, record: Mapping[str, Any]) -> float | None:
        """The number in a record; of a mapping that at the one key that is declared."""
        value = record[self.name]
        return value[self.number.at] if self.number.at and value is not None else value


@functools.cache
def fields_of(record: Any) -> dict[str, Field]:
    """The fields of a TypedDict, or of all in a union of them, by name."""
    kinds = [record] if is_typeddict(record) else [k for k in get_args(record) if is_typeddict(k)]
    hints = {k: v for kind in kinds for k, v in get_type_hints(kind, include_extras=True).items()}
    read = {name: _read(name, hint, hints) for name, hint in hints.items()}
    parts: dict[str, list[tuple[str, tuple[str, ...]]]] = {name: [] for name in read}
    for name, one in read.items():
        if one.part is not None:
            parts[one.part.of].append((name, one.part.columns))
    return {name: _with(one, tuple(parts[name])) for name, one in read.items()}


def _with(one: Field, parts: tuple[tuple[str, tuple[str, ...]], ...]) -> Field:
    return Field(**{**vars(one), "parts": parts})


def _read(name: str, hint: Any, among: Mapping[str, Any]) -> Field:
    """The field of one annotation."""
    hint, marks = _unwrap(hint)
    part = marks.get(Part)
    for end, columns in ENDS.items():
        if part is None and name.endswith(end) and (of := name.removesuffix(end)) in among:
            part = Part(of, columns)
    leaves = _leaves(hint)
    records = [leaf for leaf in leaves if is_typeddict(leaf)]
    at, column, keyed = marks.get(At), marks.get(Column), marks.get(Keyed)
    return Field(
        name=name,
        number=marks.get(Number, Number()),
        record=functools.reduce(lambda a, b: a | b, records) if records else None,
        numeric=bool(leaves & {int, float} or keyed) and part is None and Aside not in marks,
        column=column and column.name,
        at=at.columns if at else {},
        keyed=keyed and keyed.column,
        indexed=Indexed in marks,
        part=part,
    )


def _unwrap(hint: Any) -> tuple[Any, dict[type, Any]]:
    """The bare type of an annotation, and its marks by their kind."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bare, marks = _unwrap(inside[0])
        return bare, {**marks, **{type(mark): mark for mark in inside[1:]}}
    if origin is NotRequired:
        return _unwrap(inside[0])
    if origin in (Union, UnionType):
        options = [_unwrap(one) for one in inside]
        return hint, {kind: mark for _, marks in options for kind, mark in marks.items()}
    return hint, {}


def _leaves(hint: Any) -> set[Any]:
    """The types that a type is made of: of a list or a mapping those of what it holds."""
    hint = hint.__origin__ if get_origin(hint) is Annotated else hint
    inside = get_args(hint)
    return {leaf for one in inside for leaf in _leaves(one)} if inside else {hint}
