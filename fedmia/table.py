"""One long table of all numbers of a report: a row a number, the same columns for every kind.

Whatever compares runs reads it. It is made of the typed records of report.json by their
declarations (`fedmia.records.fields`) alone, and never read back into them.

| Column | Holds |
|---|---|
| run, seed, point | of a study, filled in by it |
| branch | of the federation, where a number is of one |
| subject | what the number is of, from the general to the special: `attack`, `set/mean`, `client`, `client/defence`, `group/defended`, `utility`, `round`, `sweep/known/16` |
| round, layer, client, attack | the same, where it is of one |
| baseline | of a pair: what the attack is compared with |
| control | `untrained`, `placebo`, `pixels`; none: no control |
| family | of the intervals that hold together: `low`, `high` |
| set_size | images of a set |
| target_fpr | that a rate is at; of alarms their level |
| metric | the number's key in report.json, `auc_difference` of a pair |
| value | the number |
| low, high | ends of the simultaneous interval: all of its `family` hold together at `level` |
| ci_low, ci_high | ends of its interval at `level` by itself |
| p, p_adjusted | of its test, and corrected for all of its kind (Holm) |
| level | of its intervals |
| unit | of a privacy statement: `image`, `client` |
| n_members, n_nonmembers | images that it rests on |
| note | what it says or rests on, in words |

What config, versions, hardware and timing hold is no measurement and has no row: tables of equal
runs are equal. Nor has a number that could not be known.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, cast

from fedmia.records.fields import Field, fields_of
from fedmia.records.rows import Report


class Row(TypedDict):
    """One number of a report; the module's docstring says more of each column. None: does not
    apply.

    Attributes:
        run: name of the run.
        seed: root seed of the run.
        point: of a study.
        branch: of the run.
        subject: what the number is of.
        round: of the model.
        layer: of the encoder.
        client: partition id.
        attack: name of the attack.
        baseline: what the attack is compared with.
        control: `untrained`, `placebo` or `pixels`.
        family: of the simultaneous intervals that the number belongs to.
        set_size: images a set.
        target_fpr: false-positive rate in (0, 1) at which the number was read.
        metric: what is measured.
        value: the number.
        low: lower end of its simultaneous interval.
        high: upper end.
        ci_low: lower end of its confidence interval by itself.
        ci_high: upper end.
        p: p-value in [0, 1].
        p_adjusted: p-value corrected for all tests of the family.
        level: of the intervals, such as 0.95.
        unit: of a privacy statement: `image` or `client`.
        n_members: scored members that it rests on.
        n_nonmembers: scored non-members.
        note: sentence about it.
    """

    run: str | None
    seed: int | None
    point: str | None
    branch: str | None
    subject: str | None
    round: int | None
    layer: str | None
    client: int | None
    attack: str | None
    baseline: str | None
    control: str | None
    family: str | None
    set_size: int | None
    target_fpr: float | None
    metric: str
    value: float | None
    low: float | None
    high: float | None
    ci_low: float | None
    ci_high: float | None
    p: float | None
    p_adjusted: float | None
    level: float | None
    unit: str | None
    n_members: int | None
    n_nonmembers: int | None
    note: str | None


COLUMNS = tuple(Row.__annotations__)
KEY = COLUMNS[: COLUMNS.index("value")]  # no two rows of a table agree in all of these
PATHS = ("subject", "control")  # what is inside a subject or control goes on with its name
Columns = Mapping[str, Any]
Entry = tuple[Field, Columns]


def flatten(report: Report) -> list[Row]:
    """Every number of a report as a row, in its order; `run`, `seed` and `point` are None."""
    return [row for _, row in numbers(report)]


def numbers(report: Report) -> Iterator[tuple[Field, Row]]:
    """Every number of a report: what its record declares of it, and its row."""
    level = report["family"]["level"] if "family" in report else None
    for field, columns in _numbers(Report, report, {}):
        yield field, _row(columns, level)


def _row(columns: Columns, level: float | None) -> Row:
    """A row of what is known of a number."""
    row = dict.fromkeys(COLUMNS) | {k: v for k, v in columns.items() if k in COLUMNS}
    row["level"] = None if row["low"] is None and row["ci_low"] is None else level
    return cast(Row, row)


def _numbers(kind: Any, record: Mapping[str, Any], outer: Columns) -> Iterator[Entry]:
    """Every number in a record of type `kind` and in the records inside it."""
    fields = [f for name, f in fields_of(kind).items() if record.get(name) is not None]
    here = dict(outer)
    for field in fields:
        if field.column:
            here = _add_columns(here, {field.column: record[field.name]})
    for field in fields:
        if field.numeric and field.column not in KEY:
            yield from _values(field, record, here)
        elif field.record is not None:
            yield from _records(field, record[field.name], _own_columns(here, field))


def _records(field: Field, value: Any, here: Columns) -> Iterator[Entry]:
    """The numbers of a record, or of each of a list of them."""
    if isinstance(value, Mapping):
        yield from _numbers(field.record, value, here)
        return
    for i, record in enumerate(value):
        place = {"subject": i} if field.indexed else {}
        yield from _numbers(field.record, record, _add_columns(here, place))


def _values(field: Field, record: Mapping[str, Any], here: Columns) -> Iterator[Entry]:
    """The number of a field, or each of its numbers, with its intervals and p-values."""
    value = record[field.name]
    here = {**_own_columns(here, field), "metric": field.metric}
    if isinstance(value, Mapping):
        for key, one in value.items():
            parts = {name: (record.get(name) or {}).get(key) for name, _ in field.parts}
            name = float(key) if field.keyed == "target_fpr" else key
            yield from _number(field, one, parts, {**here, field.keyed: name})
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            yield from _number(field, one, {}, {**here, "metric": f"{field.metric}/{i}"})
    else:
        yield from _number(field, value, record, here)


def _number(field: Field, value: Any, beside: Columns, here: Columns) -> Iterator[Entry]:
    """The columns of one number, none of a null; `beside`: its parts by their fields."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    row = {**here, "value": float(value)}
    for name, columns in field.parts:
        part = beside.get(name)
        ends = part if isinstance(part, Sequence) else [part] * len(columns)
        row |= dict(zip(columns, ends, strict=True))
    yield field, row


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
