"""Heads of the tables: what each says is the help of the field that its row declares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

from fedmia.records import Evaluation
from fedmia.records.fields import SHARE, fact, fields_of, nested, number
from fedmia.records.rows import Report
from fedmia.report.page import anchor
from fedmia.report.publish import write_report
from tests.made_up_runs import kind_at
from tests.report.conftest import numbers, section, tables

ROWS = ("attacks", "paired", "sets", "clients", "client_cohorts", "defended", "defended.leakage",
        "rounds", "suspects", "exposed", "overlaps", "parts", "sweep")  # fmt: skip


def declared_heads(*places: str) -> dict[str, list[str]]:
    """Head -> what it says, of the rows at some places of report.json."""
    heads = dict[str, list[str]]()
    for field in (field for place in places for field in fields_of(kind_at(place)).values()):
        heads.setdefault(" ".join(str(field.head).split()), []).append(field.help)
    return heads


def titles_of(html: str) -> dict[str, str]:
    """Head of a table -> what it says."""
    found = re.findall(r'<th[^>]* title="([^"]*)"[^>]*>(.*?)</th>', html, re.S)
    texts = ((re.sub("<[^>]*>", " ", head), title) for title, head in found)
    return {" ".join(unescape(head).split()): unescape(title) for head, title in texts}


@pytest.mark.parametrize(
    ("places", "at"),
    [
        (("attacks", "paired"), "attacks"),
        (("clients", "client_cohorts", "defended", "defended.leakage"), "clients"),
        (("rounds",), "rounds"),
        (("suspects",), "who-attacks"),
    ],
)
def test_heads__say_the_help_of_their_fields(
    everything_html: str, places: tuple[str, ...], at: str
) -> None:
    declared, says = declared_heads(*places), titles_of(section(everything_html, at))
    assert len({*declared} & {*says}) > 1
    for head in declared.keys() & says.keys() - {"clients"}:  # one is of no field
        assert any(text[1:].startswith(says[head][1:]) for text in declared[head]), head


@pytest.mark.parametrize("place", ROWS)
def test_heads__of_one_row_class_are_told_apart_and_all_say_something(place: str) -> None:
    fields = [field for field in fields_of(kind_at(place)).values() if field.head]
    assert len({field.head for field in fields}) == len(fields)
    assert all(field.help[:1].isalpha() or field.help[:1] in "[`" for field in fields)


def test_suspects__are_marked_where_an_alarm_is_raised(whole: Report, everything_html: str) -> None:
    text = section(everything_html, "who-attacks")
    rows = re.findall(r"<tr[^>]*>", text)[1:]
    assert ["leaks" in row for row in rows] == [bool(row.alarm) for row in whole.suspects]


@dataclass(frozen=True, kw_only=True)
class AgreementRow:
    """A made-up row."""

    pair: str = fact("two attacks", head="pair", place=0)
    share: float = number("of members that both find", SHARE, head="found by both", place=1)
    equal: bool = fact("whether they find the same", head="equal", marks=True)


@dataclass(frozen=True, kw_only=True)
class WithAgreements(Report):
    """A report with a table that nothing but its declaration knows."""

    agreements: list[AgreementRow] = nested(
        "by pair", subject="agreement", title="Which attacks agree?", about="All are of one image."
    )


def test_titled__a_new_table_needs_its_declaration_alone(
    run: Evaluation, report: Report, tmp_path: Path
) -> None:
    rows = [AgreementRow(pair=f"a and {i}", share=0.25, equal=i == 1) for i in range(3)]
    more = WithAgreements(**vars(report), agreements=rows)
    write_report(tmp_path, run, more, {})
    document = (tmp_path / "report.html").read_text(encoding="utf-8")
    text = section(document, anchor("Which attacks agree?"))
    assert "All are of one image." in text
    ((head, *cells),) = tables(text)
    assert head == ["pair", "found by both", "equal"] and len(cells) == 3
    assert cells[0][:2] == ["a and 0", "0.25"]
    assert ["leaks" in row for row in re.findall("<tr[^>]*>", text)] == [False, False, True, False]
    shares = [row["value"] for row in numbers(tmp_path) if row["subject"] == "agreement"]
    assert [*map(float, shares)] == [0.25] * 3
