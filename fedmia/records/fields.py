"""What a field of a record is: a number, a part of one, or what identifies numbers.

A record (`fedmia.records.rows`) declares its fields once: `Annotated[TYPE, Field(..)]`. Whatever
lists numbers reads the declarations. A field of type `float` or `int` is a number without any
mark. `X_ci` is the 95 % interval of the number `X` by itself, `X_low` and `X_high` the ends of the
simultaneous one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

R = TypeVar("R")
# The last word of a field's name -> the columns that it fills.
ENDS = {"ci": ("ci_low", "ci_high"), "low": ("low",), "high": ("high",)}


@dataclass(frozen=True)
class Field:
    """A field as its annotation declares it; the last five attributes are read off the record.

    Attributes:
        metric: what the table calls its number; empty: as the field.
        label: its line in the page's table of attacks; empty: it has none there.
        only: (field, value) of its record without which the page leaves it out.
        head: of its column in the terminal's table of attacks; empty: it has none there.
        place: of that column among the others, from the left.
        log: name under which observers get it, made of the columns of its row (`{attack}`),
            of `{of}`, its subject and control, and of `{_control}`, empty for what is no control:
            without either, controls are not logged. Empty: observers do not get it.
        log_ends: likewise of the ends of its simultaneous interval, with `{end}`: low, high.
        key: of a mapping the one key that the terminal and observers get.
        column: that its value fills, of all numbers of its record and of the records inside it.
        subject: column `subject` of the numbers of the records that it holds.
        control: column `control` of these.
        family: column `family` of these.
        keyed: the column that the keys of its mapping fill; `metric`: they name the number.
        indexed: its records are told apart only by their place in the list, which ends the subject.
        part: the number that its value belongs to.
        fills: the columns of that number's row that its value fills.
        aside: it is no measurement, but a list of identifiers or a setting.
        name: of the field.
        record: type of the records that it holds, or None.
        numeric: it holds numbers.
        optional: its record may lack it.
        parts: (field, columns) of each part of its number.
    """

    metric: str = ""
    label: str = ""
    only: tuple[str, str] = ("", "")
    head: str = ""
    place: int = 9
    log: str = ""
    log_ends: str = ""
    key: str = ""
    column: str = ""
    subject: str = ""
    control: str = ""
    family: str = ""
    keyed: str = ""
    indexed: bool = False
    part: str = ""
    fills: tuple[str, ...] = ()
    aside: bool = False
    name: str = ""
    record: Any = None
    numeric: bool = False
    optional: bool = False
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def value(self, record: Mapping[str, Any]) -> float | None:
        """The number in a record; of a mapping that at the one key that is declared."""
        value = record[self.name]
        return value[self.key] if self.key and value is not None else value


@functools.cache
def fields_of(record: Any) -> dict[str, Field]:
    """The fields of a TypedDict, or of all in a union of them, by name."""
    kinds = [record] if is_typeddict(record) else [k for k in get_args(record) if is_typeddict(k)]
    hints = {k: v for kind in kinds for k, v in get_type_hints(kind, include_extras=True).items()}
    read = {name: _field(name, hint, hints) for name, hint in hints.items()}
    parts = {
        name: tuple((p.name, p.fills) for p in read.values() if p.part == name) for name in read
    }
    return {name: replace(one, parts=parts[name]) for name, one in read.items()}


def row_of(kind: type[R], record: object, **numbers: Any) -> R:
    """Make a row of `report.json` from a record.

    Args:
        kind: the row's type.
        record: whose attributes of the same names fill the row.
        numbers: values of fields, which go before the record's.

    Returns:
        The row. A field that neither gives is None, or left out where the row may lack it.
    """
    fields = fields_of(cast(Any, kind))
    row = {name: getattr(record, name, None) for name in fields} | numbers
    optional = {name for name, field in fields.items() if field.optional}
    return cast(R, {k: v for k, v in row.items() if v is not None or k not in optional})


def _field(name: str, hint: Any, among: Mapping[str, Any]) -> Field:
    """The field of one annotation; `among`: the names of its record's fields."""
    bare, mark = _unwrap(hint)
    of, _, kind = name.rpartition("_")
    if of in among and kind in ENDS and not mark.part:
        mark = replace(mark, part=of, fills=mark.fills or ENDS[kind])
    leaves = _leaves(bare)
    records = [leaf for leaf in leaves if is_typeddict(leaf)]
    return replace(
        mark,
        name=name,
        metric=mark.metric or name,
        fills=mark.fills or ENDS["ci"],
        record=functools.reduce(lambda a, b: a | b, records) if records else None,
        numeric=bool(leaves & {int, float} or mark.keyed) and not mark.part and not mark.aside,
        optional=get_origin(hint) is NotRequired,
    )


def _unwrap(hint: Any) -> tuple[Any, Field]:
    """The bare type of an annotation, and what it declares."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [mark for mark in inside[1:] if isinstance(mark, Field)]
        return inside[0], marks[0] if marks else Field()
    if origin is NotRequired:
        return _unwrap(inside[0])
    if origin in (Union, UnionType):
        marks = [mark for _, mark in map(_unwrap, inside) if mark != Field()]
        return hint, marks[0] if marks else Field()
    return hint, Field()


def _leaves(hint: Any) -> set[Any]:
    """The types that a type is made of: of a list or a mapping those of what it holds."""
    hint = hint.__origin__ if get_origin(hint) is Annotated else hint
    inside = get_args(hint)
    return {leaf for one in inside for leaf in _leaves(one)} if inside else {hint}


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
    if origin in (Union, UnionType):
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
