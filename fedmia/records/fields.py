"""What a field of a row is: a number, an end of its interval, a fact, or rows of its own.

A row is a frozen dataclass that declares each of its fields once:

    @dataclass(frozen=True, kw_only=True)
    class ProbeRow:
        knn: float | None = number("accuracy of the probe", SHARE, "probes.knn.knn_accuracy")
        knn_ci: Interval | None = interval("knn")
        n: int = number("test images", "images")

`report.json`, its check, the table of all numbers, the columns of page and terminal with what
their heads say, and the pages of the reference are made of these declarations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

R = TypeVar("R")
NUMBER, FACT, INTERVAL, NESTED = "number", "fact", "interval", "nested"
BOTH = ("ci_low", "ci_high")  # columns of an interval of a number by itself
# Units and ranges.
SHARE, SIGNED, P, AUC = "in [0, 1]", "in [-1, 1]", "p, in (0, 1]", "AUC, in [0, 1]"
COUNT, NATS, PURE = "count", "nats", "without unit"
PNG = "PNG in base 64"  # of a fact that is a picture


@dataclasses.dataclass(frozen=True)
class Field:
    """A field as its row declares it; `name`, `record` and `parts` are read off the row.

    Attributes:
        kind: `number`, `fact`, `interval` or `nested`.
        help: what it is, in words; without a final stop.
        unit: of a number, with its range.
        by: of a number the function that computes it, dotted from `fedmia` on.
        metric: what the table calls its number; empty: as the field.
        label: its line in the page's table of attacks; empty: it has none there.
        only: (field, value) of its row without which the page leaves it out.
        head: of its column in page and terminal; empty: it has none.
        place: of that column among the others, from the left.
        digits: of the number behind its point, where it is shown.
        signed: whether it is shown with its sign, as a difference is.
        log: name under which observers get it, made of the columns of its row (`{attack}`),
            of `{of}`, its subject and control, and of `{_control}`, empty for what is no control:
            without either, controls are not logged. Empty: observers do not get it.
        log_ends: likewise of the ends of its simultaneous interval, with `{end}`: low, high.
        key: of a mapping the one key that page, terminal and observers get.
        title: of rows that a section of the page shows by itself: its heading; empty: the page
            places them, or shows none.
        about: of such rows, how to read their table.
        optional: whether its column is left out where no row has a value.
        marks: whether a row for which it is true stands out in its table.
        omitted: whether report.json leaves it out where it is None, as most reports have nothing
            here; its default is None.
        column: that its value fills, of all numbers of its row and of the rows inside it.
        subject: column `subject` of the numbers of the rows that it holds.
        control: column `control` of these.
        family: column `family` of these.
        keyed: the column that the keys of its mapping fill; `metric`: they name the number.
        indexed: its rows are told apart only by their place in the list, which ends the subject.
        part: the number that its value belongs to.
        fills: the columns of that number's row that its value fills.
        name: of the field.
        record: class of the rows that it holds, or None.
        parts: (field, columns) of each part of its number.
    """

    kind: str
    help: str
    unit: str = ""
    by: str = ""
    metric: str = ""
    label: str = ""
    only: tuple[str, str] = ("", "")
    head: str = ""
    place: int = 9
    digits: int = 2
    signed: bool = False
    log: str = ""
    log_ends: str = ""
    key: str = ""
    title: str = ""
    about: str = ""
    optional: bool = False
    marks: bool = False
    omitted: bool = False
    column: str = ""
    subject: str = ""
    control: str = ""
    family: str = ""
    keyed: str = ""
    indexed: bool = False
    part: str = ""
    fills: tuple[str, ...] = ()
    name: str = ""
    record: Any = None
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def value(self, row: object) -> Any:
        """What a row holds here; of a mapping that at the one key that is declared."""
        value = getattr(row, self.name)
        return value[self.key] if self.key and value is not None else value


def number(help: str, unit: str, by: str = "", **marks: Any) -> Any:
    """A field that holds a number, or numbers by key or in a list.

    Args:
        help: what it is, in words.
        unit: with its range; one of the units of this module, or words.
        by: the function that computes it, dotted from `fedmia` on; empty of a count or a setting.
        marks: attributes of `Field`, and the default of a row that is not whole yet.

    Returns:
        The field of the dataclass.
    """
    return _declare(NUMBER, help, marks | {"unit": unit, "by": by})


def fact(help: str, **marks: Any) -> Any:
    """A field that is no measurement: a name, a text, a setting, a list of identifiers.

    Args:
        help: what it is, in words.
        marks: attributes of `Field`, and the default of a row that is not whole yet.

    Returns:
        The field of the dataclass.
    """
    return _declare(FACT, help, marks)


def nested(help: str, **marks: Any) -> Any:
    """A field that holds a row, a list of rows, or lists of them by key.

    Args:
        help: what it is, in words.
        marks: attributes of `Field`, and the default of a row that is not whole yet.

    Returns:
        The field of the dataclass.
    """
    return _declare(NESTED, help, marks)


def interval(of: str, fills: tuple[str, ...] = BOTH, help: str = "", **marks: Any) -> Any:
    """A field that holds an interval of a number, one of its ends, or a p-value of it.

    Args:
        of: the field of the number.
        fills: columns of the number's row in the table; both ends of its interval by itself, or
            ("low",), ("high",), ("p",), ("p_adjusted",).
        help: what it is, in words; empty: made of `fills`.
        marks: attributes of `Field`, and the default of a row that is not whole yet.

    Returns:
        The field of the dataclass.
    """
    words = {
        BOTH: f"[low, high]: 95 % interval of `{of}` by itself; null where there is none",
        ("low",): f"lower end of the simultaneous 95 % interval of `{of}`",
        ("high",): "its upper end",
    }
    unit = P if fills in (("p",), ("p_adjusted",)) else ""
    marks |= {"unit": unit, "part": of, "fills": fills}
    return _declare(INTERVAL, help or words[fills], marks)


def _declare(kind: str, help: str, marks: dict[str, Any]) -> Any:
    """The field of the dataclass; it may have a default, as any field."""
    usual = {name: marks.pop(name) for name in ("default", "default_factory") if name in marks}
    return dataclasses.field(metadata={"field": Field(kind, help, **marks)}, **usual)


def fields_of(kind: Any) -> dict[str, Field]:
    """The fields of a row's class by name, in the order in which it holds them."""
    return _fields(kind)


@functools.cache
def _fields(kind: Any) -> dict[str, Field]:
    hints = get_type_hints(kind)
    read = {
        one.name: dataclasses.replace(
            one.metadata["field"], name=one.name, record=_record(hints[one.name])
        )
        for one in dataclasses.fields(kind)
    }
    parts = {
        name: tuple((p.name, p.fills) for p in read.values() if p.part == name) for name in read
    }
    return {
        name: dataclasses.replace(one, parts=parts[name], metric=one.metric or name)
        for name, one in read.items()
    }


def row_of(kind: type[R], source: object, **values: Any) -> R:
    """Make a row of what another object holds.

    Args:
        kind: class of the row.
        source: whose attributes of the same names fill the row; None: there is none.
        values: of fields, which go before the source's.

    Returns:
        The row. A field that may be None is None where neither has it.
    """
    names = fields_of(kind)
    return kind(**{name: getattr(source, name, None) for name in names} | values)


def _record(hint: Any) -> Any:
    """The class of the rows in a type, None where it holds none."""
    return next((leaf for leaf in leaves(hint) if dataclasses.is_dataclass(leaf)), None)


def leaves(hint: Any) -> Iterator[Any]:
    """The types that a type is made of: of a list or a mapping those of what it holds."""
    inside = get_args(hint)
    if get_origin(hint) in (Union, UnionType) or inside:
        for one in inside:
            yield from leaves(one)
    else:
        yield hint
