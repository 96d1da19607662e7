"""The report in the terminal: its verdict first, then the page's tables."""

from __future__ import annotations

from rich import table as rich_table
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from fedmia.records.rows import Report
from fedmia.report import report_tables
from fedmia.report.attacker import is_reversed
from fedmia.report.datasets import statement
from fedmia.report.format import (
    DECIDES,
    REVERSED,
    TOGETHER,
    defended_lines,
    group_by_reason,
    sentences,
)
from fedmia.report.selection import is_reading
from fedmia.report.tables import Table, TextCell
from fedmia.report.verdict import TITLES, is_alarming


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
    listed = (attacks, report_tables.paired(report), report_tables.utility(report))
    for table in listed:
        parts += [Text(), draw(table)] * bool(table.rows)
    parts.append(Text())
    parts += [Text(line, style="dim") for line in legend(report)]
    parts += [Text(sentence) for sentence in sentences(report).values() if sentence]
    parts += [Text(f"{r.attack}: {statement(r)}.") for r in report.dataset_inference]
    parts += [Text(line) for line in defended_lines(report)]
    parts += [
        Text(f"Not run: {names}: {reason}", style="dim")
        for names, reason in group_by_reason(report).items()
    ]
    return Group(*parts)


def draw(table: Table) -> RenderableType:
    """A table of the page, in the terminal.

    Args:
        table: of `fedmia.report.tables`.
    """
    grid = rich_table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for head in table.head:
        grid.add_column(Text(_plain(head)), overflow="fold", no_wrap="AUC" in _plain(head))
    for row in table.rows:
        grid.add_row(*(Text(_plain(cell)) for cell in row.cells), style="bold red" * bool(row.css))
    return grid


def _plain(cell: str | TextCell) -> str:
    return cell if isinstance(cell, str) else "\n".join([cell.text, *cell.small]).strip()


def legend(report: Report) -> list[str]:
    """What the tables' signs mean, as far as they occur."""
    if not report.attacks:
        return []
    shadows = any(r.threshold_source == "shadow" for r in report.attacks)
    source = "known images or shadows" if shadows else "known images"
    attacked = any(r.under_attack for r in report.attacks)
    of = any(r.n_member_subjects is not None for r in report.attacks)
    return [
        f"low, high: {TOGETHER.format('attacks')}. {DECIDES}. n: scored members + non-members"
        f"{', of so many subjects' * of}. Accuracy: at a threshold from {source}."
        + " *: scored on the model under attack." * attacked
        + f" {REVERSED}." * any(map(is_reversed, report.attacks))
        + " Other readings of these attacks: on the page."
        * any(is_reading(report, row) for row in report.attacks)
    ]
