"""One long table of all numbers of a report: a row a number, the same columns for every kind.

Whatever compares runs reads it. It is made of the rows of report.json by their declarations
(`fedmia.records.fields`) alone, and never read back into them. A row is a mapping with every key of
COLUMNS; None does not apply.

What config, versions, hardware and timing hold is no measurement and has no row: tables of equal
runs are equal. Nor has a number that could not be known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from fedmia.records.fields import NESTED, NUMBER, Field, fields_of
from fedmia.records.rows import Report

# Column -> its type, and what it holds.
COLUMNS: dict[str, tuple[type, str]] = {
    "run": (str, "name of the run; of a study, filled in by it"),
    "seed": (int, "root seed of the run, likewise"),
    "point": (str, "of a study, likewise"),
    "branch": (str, "of the federation, where a number is of one"),
    "subject": (
        str,
        "what the number is of, from the general to the special: `attack`, `set/mean`, `client`, "
        "`client/defence`, `group/defended`, `utility`, `round`, `sweep/known/16`",
    ),
    "round": (int, "of the model, where it is of one"),
    "layer": (str, "of the encoder, likewise"),
    "client": (int, "partition id, likewise"),
    "attack": (str, "its name, likewise"),
    "baseline": (str, "of a pair: what the attack is compared with"),
    "control": (str, "`untrained`, `placebo`, `pixels`; none: no control"),
    "family": (str, "of the intervals that hold together: `low`, `high`"),
    "set_size": (int, "images of a set"),
    "target_fpr": (float, "that a rate is at; of alarms their level"),
    "metric": (str, "the number's key in report.json, `auc_difference` of a pair"),
    "value": (float, "the number"),
    "low": (
        float,
        "lower end of the simultaneous interval: all of its `family` hold together at `level`",
    ),
    "high": (float, "its upper end"),
    "ci_low": (float, "lower end of its interval at `level` by itself"),
    "ci_high": (float, "its upper end"),
    "p": (float, "of its test"),
    "p_adjusted": (float, "corrected for all of its kind (Holm)"),
    "level": (float, "of its intervals"),
    "unit": (str, "of a privacy statement: `image`, `client`"),
    "n_members": (int, "scored members that it rests on"),
    "n_nonmembers": (int, "scored non-members"),
    "note": (str, "what it rests on, in words"),
}
KEY = tuple(COLUMNS)[: [*COLUMNS].index("value")]  # no two rows of a table agree in all of these
PATHS = ("subject", "control")  # what is inside a subject or control goes on with its name
Columns = Mapping[str, Any]
Row = dict[str, Any]
Entry = tuple[Field, Columns]
Declared = tuple[str, Field, Columns]


def flatten(report: Report) -> list[Row]:
    """Every number of a report as a row, in its order; `run`, `seed` and `point` are None."""
    return [row for _, row in numbers(report)]


def numbers(report: Report) -> Iterator[tuple[Field, Row]]:
    """Every number of a report: what its row declares of it, and its row of the table."""
    for field, columns in _numbers(report, {}):
        yield field, _row(columns, report.family.level)


def _row(columns: Columns, level: float) -> Row:
    """A row of the table of what is known of a number."""
    row: Row = {**dict.fromkeys(COLUMNS), **{k: v for k, v in columns.items() if k in COLUMNS}}
    row["level"] = None if row["low"] is None and row["ci_low"] is None else level
    return row


def _numbers(record: Any, outer: Columns) -> Iterator[Entry]:
    """Every number in a record and in those inside it."""
    fields = fields_of(type(record)).values()
    known = [(f, value) for f in fields if (value := getattr(record, f.name)) is not None]
    here = dict(outer)
    for field, value in known:
        if field.column:
            here = _add_columns(here, {field.column: value})
    for field, value in known:
        if field.kind == NUMBER and field.column not in KEY:
            yield from _values(field, value, record, here)
        elif field.kind == NESTED:
            yield from _records(field, value, _own_columns(here, field))


def _records(field: Field, value: Any, here: Columns) -> Iterator[Entry]:
    """The numbers of a record, of each of a list of them, or of lists by key."""
    if isinstance(value, Mapping):
        for key, records in value.items():
            yield from _records(field, records, _add_columns(here, {field.keyed: key}))
    elif isinstance(value, list):
        for i, record in enumerate(value):
            place = {"subject": i} if field.indexed else {}
            yield from _numbers(record, _add_columns(here, place))
    else:
        yield from _numbers(value, here)


def _values(field: Field, value: Any, record: Any, here: Columns) -> Iterator[Entry]:
    """The number of a field, or each of its numbers, with its intervals and p-values."""
    here = {**_own_columns(here, field), "metric": field.metric}
    if isinstance(value, Mapping):
        for key, one in value.items():
            parts = {name: (getattr(record, name) or {}).get(key) for name, _ in field.parts}
            name = float(key) if field.keyed == "target_fpr" else key
            yield from _number(field, one, parts, {**here, field.keyed: name})
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            yield from _number(field, one, {}, {**here, "metric": f"{field.metric}/{i}"})
    else:
        parts = {name: getattr(record, name) for name, _ in field.parts}
        yield from _number(field, value, parts, here)


def _number(field: Field, value: Any, beside: Columns, here: Columns) -> Iterator[Entry]:
    """The columns of one number, none of a null; `beside`: its parts by their fields."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    row = {**here, "value": float(value)}
    for name, columns in field.parts:
        part = beside[name]
        ends = part if isinstance(part, Sequence) else [part] * len(columns)
        row |= dict(zip(columns, ends, strict=True))
    yield field, row


def declared() -> list[Declared]:
    """Every number that a report can hold, whatever it holds.

    Returns:
        Its place in report.json, its field, and its columns; in both `{name}` stands for the value
        of a field, or for a key of a mapping.
    """
    return list(_declared(Report, "", {}))


def _declared(kind: Any, place: str, outer: Columns) -> Iterator[Declared]:
    """Every number that rows of a class declare, without rows of this class inside them."""
    fields, hints = fields_of(kind).values(), get_type_hints(kind)
    here = dict(outer)
    for field in fields:
        if field.column:
            here = _add_columns(here, {field.column: f"{{{field.name}}}"})
    for field in fields:
        columns, at = _own_columns(here, field), f"{place}{field.name}"
        key = {field.keyed: f"{{{field.keyed}}}"} if field.keyed else {}
        hint = hints[field.name]
        several = any(get_origin(one) in (list, Sequence) for one in (hint, *get_args(hint)))
        if field.kind == NUMBER and field.column not in KEY:
            metric = f"{field.metric}{'/{i}' * several}"
            yield at, field, {**columns, "metric": metric, **key}
        elif field.kind == NESTED and field.record is not kind:
            at = ".".join((at, *key.values())) + "[]" * several
            own = _add_columns(columns, {**key, **({"subject": "{i}"} if field.indexed else {})})
            yield from _declared(field.record, f"{at}.", own)


def _own_columns(here: Columns, field: Field) -> dict[str, Any]:
    """The columns of what lies in a field; of one of the report's own its name is the subject."""
    own = {"subject": field.subject, "control": field.control, "family": field.family}
    columns = {column: value for column, value in own.items() if value}
    return _add_columns(here, columns if here or columns else {"subject": field.name})


def _add_columns(outer: Columns, more: Columns) -> dict[str, Any]:
    """`outer` with the columns `more`; a subject or a control goes on with its own."""
    return {**outer} | {
        name: f"{outer[name]}/{value}" if name in PATHS and outer.get(name) else value
        for name, value in more.items()
    }
