"""Heads of the tables: what each says is the help of the field that its row declares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import Any

import pytest

from fedmia.records.attack_rows import AttackRow, PairedRow, SetRow
from fedmia.records.client_rows import ClientInferenceRow, ClientRow, CohortRow, SuspectRow
from fedmia.records.fields import SHARE, fact, fields_of, nested, number, row_of
from fedmia.records.rows import Report, RoundRow
from fedmia.report import report_tables
from fedmia.report.page import anchor, page
from fedmia.report.tables import TITLES, TextCell, columns_of, head_title, sentence, text_of
from fedmia.table import flatten

GroupRow = fields_of(Report)["defended"].record
GroupLeakRow = fields_of(GroupRow)["leakage"].record
DRAWN = {
    "attacks": (AttackRow,),
    "paired": (PairedRow,),
    "sets": (SetRow,),
    "clients": (ClientRow,),
    "cohorts": (CohortRow,),
    "defended": (GroupLeakRow, GroupRow),
    "rounds": (RoundRow,),
}


def declared_heads(*kinds: Any) -> dict[str, str]:
    """Head -> what it says, of the rows of some classes."""
    fields = [field for kind in kinds for field in fields_of(kind).values() if field.head]
    return {field.head: sentence(field.help) for field in fields}


@pytest.mark.parametrize("name", DRAWN)
def test_heads__of_a_table_say_the_help_of_the_field(report: Report, name: str) -> None:
    declared = declared_heads(*DRAWN[name])
    heads = getattr(report_tables, name)(report).head
    titles = {head.text: head.title for head in heads if isinstance(head, TextCell) and head.title}
    assert titles and titles == {text: declared[text] for text in titles}
    assert not declared.keys() & {head for head in heads if isinstance(head, str)}


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


def test_titled__a_new_table_needs_its_declaration_alone(report: Report) -> None:
    rows = [AgreementRow(pair=f"a and {i}", share=0.25, equal=i == 1) for i in range(3)]
    more = WithAgreements(**vars(report), agreements=rows)
    field, table = report_tables.titled(more)["agreements"]
    assert [*table.marked] == [1] and len(table.rows) == 3 and len(table.head) == 3
    document = page(more, {})
    section = document[document.index(f'id="{anchor(field.title)}"') :].partition("</section>")[0]
    assert "All are of one image." in section and "found by both" in section and "0.25" in section
    assert [row["value"] for row in flatten(more) if row["subject"] == "agreement"] == [0.25] * 3


def test_titled__suspects_stand_in_their_section(whole: Report) -> None:
    field, table = report_tables.titled(whole)["suspects"]
    declared = declared_heads(SuspectRow)
    titles = {head.text: head.title for head in table.head if isinstance(head, TextCell)}
    assert titles == declared and field.title == "Who attacks?"
    assert [at in table.marked for at in range(len(table.rows))] == [
        bool(row.alarm) for row in whole.suspects
    ]


def test_heads__of_one_row_class_are_told_apart_and_all_say_something() -> None:
    for kinds in (*DRAWN.values(), (ClientInferenceRow,)):
        for kind in kinds:
            columns = columns_of(kind)
            heads = [head for head in columns if isinstance(head, TextCell)]
            assert len({head.text for head in heads}) == len(columns) and all(
                head.title[:1].isupper() or head.title[:1] in "[`" for head in heads
            )


def test_page__shows_what_each_head_says(report: Report, html: str) -> None:
    titles = {unescape(text) for text in re.findall(r'<th[^>]* title="([^"]*)"', html)}
    for name in ("attacks", "paired", "clients", "rounds"):
        for head in getattr(report_tables, name)(report).head:
            says = head.title if isinstance(head, TextCell) else head_title(head)
            assert not says or says in titles, (name, head)


def test_titles__of_no_field_are_those_of_the_report_that_a_row_declares() -> None:
    """One head is worded in one place; what tables of studies share with them may stay."""
    own = declared_heads(SuspectRow, ClientInferenceRow, GroupLeakRow, GroupRow)
    assert not {head.replace("\n", " ") for head in own} & TITLES.keys() - {
        "client", "untrained", "difference",
    }  # fmt: skip


def test_cells__of_p_values_keep_the_digits_that_matter() -> None:
    row = row_of(
        ClientInferenceRow, None, whose="client", client=0, p_value=4.5e-05, p_value_holm=0.0123,
        p_value_untrained=1.0, difference=0.12345, n=1, n_nonmembers=1,
    )  # fmt: skip
    fields = fields_of(ClientInferenceRow)
    names = ("p_value", "p_value_holm", "p_value_untrained", "difference")
    assert [text_of(fields[n], row) for n in names] == ["4.5e-05", "0.0123", "1.0000", "0.1235"]
