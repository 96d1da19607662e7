"""Every number of a report says what it is, in which unit, and what computes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fedmia.records.fields import COUNT, INTERVAL, NATS, NUMBER, Field, fields_of
from fedmia.records.rows import Report

# What a run is asked for, or promises, in numbers.
SETTINGS = {
    ("RegimeRow", "bound"), ("Family", "level"), ("Epsilon", "delta"),
    ("AttackBoundRow", "delta"),
}  # fmt: skip


def kinds_within(kind: Any, seen: set[Any]) -> Iterator[Any]:
    """The class of a row, and of every row inside it."""
    if kind not in seen:
        seen.add(kind)
        yield kind
        for field in fields_of(kind).values():
            if field.record is not None:
                yield from kinds_within(field.record, seen)


KINDS = {kind.__name__: kind for kind in kinds_within(Report, set())}


@pytest.fixture(params=KINDS)
def declared(request: pytest.FixtureRequest) -> dict[tuple[str, str], Field]:
    """The fields of one class of rows, by its name and theirs."""
    name: str = request.param
    return {(name, field.name): field for field in fields_of(KINDS[name]).values()}


def test_numbers__have_a_unit_and_who_computes_them(
    declared: dict[tuple[str, str], Field],
) -> None:
    """A count, a loss and a setting explain themselves."""
    numbers = {place: field for place, field in declared.items() if field.kind == NUMBER}
    assert [place for place, field in numbers.items() if not field.unit] == []
    plain = {p for p, field in numbers.items() if field.unit in (COUNT, NATS)} | SETTINGS
    assert [place for place, field in numbers.items() if not field.by and place not in plain] == []


def test_intervals__are_of_a_number_of_their_row(declared: dict[tuple[str, str], Field]) -> None:
    parts = {place: field for place, field in declared.items() if field.kind == INTERVAL}
    for (kind, name), field in parts.items():
        whole = declared[kind, field.part]
        assert whole.kind == NUMBER and (name, field.fills) in whole.parts


def test_settings__are_fields_without_who_computes_them() -> None:
    for kind, name in SETTINGS:
        assert not fields_of(KINDS[kind])[name].by
