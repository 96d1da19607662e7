"""Heads of the tables: what each says is the help of the field that its row declares."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from fedmia.records.attack_rows import AttackRow, PairedRow, SetRow
from fedmia.records.client_rows import ClientInferenceRow, ClientRow, CohortRow, SuspectRow
from fedmia.records.fields import fields_of, row_of
from fedmia.records.rows import Report, RoundRow
from fedmia.report import report_tables
from fedmia.report.tables import TITLES, TextCell, columns_of, head_title, sentence, text_of

GroupRow = fields_of(Report)["defended"].record
GroupLeakRow = fields_of(GroupRow)["leakage"].record
DRAWN = {
    "attacks": (AttackRow,),
    "paired": (PairedRow,),
    "sets": (SetRow,),
    "clients": (ClientRow,),
    "cohorts": (CohortRow,),
    "suspects": (SuspectRow,),
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
    titles = {head.text: head.title for head in heads if isinstance(head, TextCell)}
    assert titles and titles == {text: declared[text] for text in titles}
    assert not declared.keys() & {head for head in heads if isinstance(head, str)}


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
