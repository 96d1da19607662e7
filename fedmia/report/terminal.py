"""The report in the terminal: its verdict first, then the page's tables."""

from __future__ import annotations

from rich import table as rich_table
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from fedmia.records.rows import Report
from fedmia.report import report_tables
from fedmia.report.judgement import is_alarming
from fedmia.report.tables import Table, TextCell, name_of
from fedmia.report.words.attacks import legend, not_run_lines
from fedmia.report.words.beside import sentences
from fedmia.report.words.bounds import defended_lines
from fedmia.report.words.meaning import TITLES
from fedmia.report.words.sets import beside_verdict
from fedmia.report.words.terms import term_lines


def render(report: Report) -> RenderableType:
    """What the command line prints of a report; fits 80 columns.

    Args:
        report: what `fedmia.report.build.build_report` returned.
    """
    verdict = Text(report.verdict, style="bold")
    parts: list[RenderableType] = [
        Panel(verdict, title="verdict", border_style="red" if is_alarming(report) else "yellow")
    ]
    parts += [
        Text.assemble((f"{title}: ", "bold"), str(getattr(report, key)).replace("`", ""))
        for key, title in TITLES.items()
    ]
    attacks = report_tables.attacks(report, readings=False)
    utility = report_tables.utility(report)
    listed = (attacks, report_tables.paired(report), utility)
    for table in listed:
        parts += [Text(), draw(table)] * bool(table.rows)
    parts.append(Text())
    names = [name_of(head) for table in listed for head in table.head if table.rows]
    names += [name_of(row[0]) for table in (attacks, utility) for row in table.rows]
    lines = filter(None, [legend(report), *term_lines(names)])
    parts += [Text(line, style="dim") for line in lines]
    parts += [Text(sentence) for sentence in sentences(report).values() if sentence]
    parts += [Text(line) for line in beside_verdict(report)]
    parts += [Text(line) for line in defended_lines(report)]
    parts += [Text(line, style="dim") for line in not_run_lines(report)]
    return Group(*parts)


def draw(table: Table) -> RenderableType:
    """A table of the page, in the terminal.

    Args:
        table: of `fedmia.report.tables`.
    """
    grid = rich_table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for head in table.head:
        text = name_of(head)
        grid.add_column(Text(text), overflow="fold", no_wrap="AUC" in text)
    for at, row in enumerate(table.rows):
        grid.add_row(*(Text(_plain(cell)) for cell in row), style="bold red" * (at in table.marked))
    return grid


def _plain(cell: str | TextCell) -> str:
    return cell if isinstance(cell, str) else "\n".join([cell.text, *cell.small]).strip()
