"""Tables that are declared: a column is a head and how a row reads under it.

One list of columns gives a table of the page; `screen` is the form of all tables of the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rich.table

from fedmia.report.format import DASH, estimate, interval, number
from fedmia.report.tables import Table, TextCell, TextRow
from fedmia.statistics.spread import Spread

DIGITS = 3
MODELS = TextCell("models", ("one a seed",))
Value = Callable[[Any], str | TextCell]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        head: its name, or a name over smaller lines.
        cell: what a row says under it.
    """

    head: str | TextCell
    cell: Value


def table(
    columns: Iterable[Column], rows: Iterable[Any], css: Callable[[Any], str] = lambda row: ""
) -> Table:
    """The rows under the columns; `css`: class of a row in the page's style."""
    listed = list(columns)
    lines = [TextRow([column.cell(row) for column in listed], css(row)) for row in rows]
    return Table([column.head for column in listed], lines)


def text_column(head: str | TextCell, key: str) -> Column:
    """A text, or a dash for none."""
    return Column(head, lambda row: DASH if row[key] is None else str(row[key]))


def count(head: str | TextCell, key: str) -> Column:
    """How many: `1,200`, or a dash."""
    return Column(head, lambda row: DASH if row[key] is None else f"{row[key]:,}")


def decimal(head: str | TextCell, key: str) -> Column:
    """A number, as `0.612`."""
    return Column(head, lambda row: number(row[key], DIGITS))


def number_with_ci(head: str | TextCell, key: str) -> Column:
    """A number with the interval beside it under `KEY_ci`."""
    return Column(head, lambda row: estimate(row[key], row[f"{key}_ci"], DIGITS))


def mean(head: str | TextCell, key: str) -> Column:
    """A mean over models with its interval."""
    return Column(head, lambda row: over_models(row[key]))


def change(head: str | TextCell, key: str) -> Column:
    """A difference with its interval; a dash where there is none."""
    return Column(head, lambda row: DASH if row[key] is None else signed(row[key]))


def ends(key: str) -> Column:
    """The least and the greatest of the models."""
    return Column("least to greatest", lambda row: _ends(row[key]))


def models(key: str) -> Column:
    """How many models a spread is of."""
    return Column(MODELS, lambda row: str(row[key]["n"]))


def over_models(value: Spread) -> str:
    """A mean, as `0.612 [0.585, 0.635]`."""
    return estimate(value["mean"], value["ci"], DIGITS)


def signed(value: Spread) -> str:
    """A difference, as `+0.012 [-0.004, +0.028]`."""
    if value["mean"] is None:
        return DASH
    both = [f"{end:+.{DIGITS}f}" for end in value["ci"] or ()]
    return f"{value['mean']:+.{DIGITS}f}" + (f" [{', '.join(both)}]" if both else "")


def verdicts(codes: Mapping[str, int]) -> str:
    """How many models have which verdict, as `leaks 2, collapsed 1`."""
    return ", ".join(f"{code} {count}" for code, count in codes.items()) or DASH


def number_over_cis(value: float | None, *cis: Any, digits: int = DIGITS) -> TextCell:
    """A number over its intervals."""
    return TextCell(number(value, digits), tuple(interval(ci, digits) for ci in cis if ci))


def screen(
    text_heads: Sequence[str],
    number_heads: Sequence[str],
    lines: Iterable[Sequence[str]],
    once: Sequence[int] = (),
) -> Any:
    """A table of the terminal: columns that break their lines, then columns of numbers.

    Args:
        text_heads: heads of columns that break their lines.
        number_heads: heads of columns of numbers.
        lines: cells of each row.
        once: columns that show a cell on the first of the lines alone whose first cells are equal.

    Returns:
        The table of rich.
    """
    grid = rich.table.Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for head in text_heads:
        grid.add_column(head, overflow="fold")
    for head in number_heads:
        grid.add_column(head, justify="right")
    last = None
    for line in lines:
        again = line[0] == last
        grid.add_row(*("" if again and i in once else cell for i, cell in enumerate(line)))
        last = line[0]
    return grid


def _ends(value: Spread) -> str:
    if value["n"] < 2:
        return DASH
    return f"{number(value['least'], DIGITS)} to {number(value['greatest'], DIGITS)}"
