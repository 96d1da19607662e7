"""Every number of a report says what it is, in which unit, and what computes it."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

from fedmia.records.fields import COUNT, INTERVAL, NATS, NUMBER, Field, fields_of, row_of
from fedmia.records.rows import FaultRow, Report, UtilityRow

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


def test_fields__say_what_they_are_without_a_final_stop(
    declared: dict[tuple[str, str], Field],
) -> None:
    helps = {place: field.help for place, field in declared.items()}
    assert [p for p, text in helps.items() if not text or text != text.strip().rstrip(".")] == []


def test_numbers__have_a_unit_and_who_computes_them(
    declared: dict[tuple[str, str], Field],
) -> None:
    """A count, a loss and a setting explain themselves."""
    numbers = {place: field for place, field in declared.items() if field.kind == NUMBER}
    assert [place for place, field in numbers.items() if not field.unit] == []
    plain = {p for p, field in numbers.items() if field.unit in (COUNT, NATS)} | SETTINGS
    assert [place for place, field in numbers.items() if not field.by and place not in plain] == []


def test_numbers__are_computed_by_what_there_is(declared: dict[tuple[str, str], Field]) -> None:
    for field in declared.values():
        assert not field.by or callable(pkgutil.resolve_name(f"fedmia.{field.by}")), field.by


def test_intervals__are_of_a_number_of_their_row(declared: dict[tuple[str, str], Field]) -> None:
    parts = {place: field for place, field in declared.items() if field.kind == INTERVAL}
    for (kind, name), field in parts.items():
        whole = declared[kind, field.part]
        assert whole.kind == NUMBER and (name, field.fills) in whole.parts


def test_settings__are_fields_without_who_computes_them() -> None:
    for kind, name in SETTINGS:
        assert not fields_of(KINDS[kind])[name].by


def test_row_of__is_filled_from_values_then_from_the_source_then_with_none() -> None:
    source = row_of(UtilityRow, None, knn=0.5, n=7)
    assert row_of(UtilityRow, source, n=8) == UtilityRow(
        round=None, knn=0.5, knn_ci=None, linear=None, linear_ci=None, n=8
    )
    with pytest.raises(TypeError, match="colour"):
        row_of(FaultRow, None, colour="red")
