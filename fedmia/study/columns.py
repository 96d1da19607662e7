"""Columns of a study's tables, made of what the rows declare; and tables of the terminal.

    columns_of(AttackPointRow, "attack", "auc") | inside(AttackPointRow, "auc", "n", "least")

A number over models reads `0.612 [0.585, 0.635]`, a difference with its sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any

from rich.text import Text

from fedmia.records.fields import Field, P, fields_of
from fedmia.report import tables
from fedmia.report.tables import TextCell
from fedmia.report.words.numbers import DASH, format_p, interval, number
from fedmia.study.rows import AttackPointRow, OverModels

WIDTH = 80  # letters of a line of the terminal
GAP = 1  # letters between two columns
PIECE = re.compile(r"\([^()]{1,12}\)|\S+ \[[^]]*\]|\d+ %,?|\S+(?: \d+(?! %)(?=,| |$),?)?")
# The cell of a row; with so many digits behind the point of numbers over models, None: as declared.
Cell = Callable[[Any, int | None], str | TextCell]
Columns = Mapping[TextCell, Cell]


def columns_of(kind: Any, *names: str, **heads: str) -> dict[TextCell, Cell]:
    """Columns of rows of a class, as it declares them.

    Args:
        kind: class of the rows.
        names: of its fields; none: all that have a head.
        heads: of fields that have another head in this table.

    Returns:
        Head, which says what the column is -> what makes the cell of a row.
    """
    fields = fields_of(kind)
    listed = names or [name for name, field in fields.items() if field.head]
    return {
        TextCell(heads.get(name, fields[name].head), title=tables.sentence(fields[name].help)):
            partial(_cell, fields[name])
        for name in listed
    }  # fmt: skip


def inside(kind: Any, name: str, *inner: str) -> dict[TextCell, Cell]:
    """Columns of what a field of a row holds.

    Args:
        kind: class of the rows.
        name: of the field.
        inner: fields of what it holds.

    Returns:
        As `columns_of`; a head also says of what it is.
    """
    field = fields_of(kind)[name]
    columns = columns_of(field.record, *inner)
    of = tables.sentence(field.help)
    return {
        replace(head, title=f"{head.title}. Of: {of}"): partial(_inner, name, cell)
        for head, cell in columns.items()
    }


def _inner(name: str, cell: Cell, row: Any, digits: int | None = None) -> str | TextCell:
    value = getattr(row, name)
    return DASH if value is None else cell(value, digits)


def control_column(name: str) -> dict[TextCell, Cell]:
    """The column of a control of attacks: its mean alone.

    Args:
        name: of the control.

    Returns:
        As `columns_of`, of rows of `AttackPointRow`.
    """
    field = fields_of(AttackPointRow)["controls"]

    def cell(row: AttackPointRow, _: int | None = None) -> str:
        own = row.controls.get(name)
        return number(None if own is None else own.mean, field.digits)

    return {TextCell(f"{name} control", title=f"{tables.sentence(field.help)}: {name}"): cell}


def _cell(field: Field, row: Any, digits: int | None = None) -> str | TextCell:
    """How a field of a row reads: text, `1,200`, `0.612 [0.585, 0.635]`, `leaks 2`, or a dash."""
    value = field.value(row)
    if isinstance(value, OverModels):
        return estimate(value, field.digits if digits is None else digits, field.signed)
    if field.unit == P:
        return format_p(value)
    if isinstance(value, Mapping):
        if not all(isinstance(one, int) for one in value.values()):  # by seed, not counts
            texts = (v if isinstance(v, str) else number(v, field.digits) for v in value.values())
            return " ".join(texts)
        return ", ".join(f"{name} {count}" for name, count in value.items()) or DASH
    return tables.text_of(field, row) or DASH


def estimate(value: OverModels, digits: int, signed: bool = False) -> str | TextCell:
    """A mean with its interval; over its intervals where one is simultaneous. Behind it how many
    runs are void, and that models are all equal, which give no interval.

    Args:
        value: over the models.
        digits: behind the point.
        signed: whether it is a difference, which has a sign.

    Returns:
        Text, or a number over its intervals.
    """
    if value.mean is None:
        return f"{DASH} ({value.void})" if value.void else DASH
    equal = value.ci is None and value.sd == 0
    more = [f"({text})" for text in (f"{value.n} equal" * equal, value.void) if text]
    mean, *ends = (f"{one:{'+' * signed}.{digits}f}" for one in (value.mean, *(value.ci or ())))
    if value.ci_simultaneous is not None:
        cis = (value.ci, value.ci_simultaneous)
        return TextCell(mean, (*(interval(ci, digits) for ci in cis if ci), *more))
    return " ".join([mean, *([f"[{', '.join(ends)}]"] if ends else []), *more])


def in_one_line(cell: str | TextCell) -> str:
    """A cell as text; of its intervals the last alone, which holds together with others."""
    return cell if isinstance(cell, str) else " ".join((cell.text, *(cell.small[1:] or cell.small)))


# -- in the terminal -------------------------------------------------------------------------------


def screen(heads: Sequence[str], lines: Sequence[Sequence[str]], width: int = WIDTH) -> Text:
    """A table of the terminal, in which no word is cut: where columns do not fit side by side, the
    first one becomes a line above its rows; where this does not do either, each cell has a line.

    Args:
        heads: of the columns.
        lines: cells of each row.
        width: letters of a line.

    Returns:
        The table; its first column shows equal cells once.
    """
    table = [list(map(_pieces, line)) for line in (heads, *lines)]
    least = [max(_longest(cell) for cell in column) for column in zip(*table, strict=True)]
    if sum(least) + GAP * len(least) <= width:
        firsts = [line[0] for line in lines]
        repeated = [one == last for one, last in zip(firsts, [None, *firsts], strict=False)]
        once = [["" if again else first, *rest]
                for again, (first, *rest) in zip(repeated, lines, strict=True)]  # fmt: skip
        return _grid(heads, once, _widths(least, table, width))
    if sum(least[1:]) + GAP * len(least) <= width:
        widths = _widths(least[1:], [line[1:] for line in table], width)
        text = Text(f"{heads[0]}\n", "bold").append_text(_grid(heads[1:], [], widths))
        for first, group in groupby(lines, key=itemgetter(0)):
            text.append(f"{first}\n").append_text(_grid([], [line[1:] for line in group], widths))
        return text
    text = Text()
    for first, *rest in lines:
        text.append(f"{heads[0]}: {first}\n", "bold")
        text.append("".join(f"  {h}: {c}\n" for h, c in zip(heads[1:], rest, strict=True)))
    return text


def _pieces(text: str) -> list[list[str]]:
    """The lines of a cell, each as pieces that no line breaks: a number with its interval, short
    brackets, a number with its percent sign, a word with the number behind it, else a word."""
    return [PIECE.findall(line) for line in text.split("\n")]


def _longest(lines: Sequence[Sequence[str]]) -> int:
    return max((len(piece) for line in lines for piece in line), default=0)


def _widths(least: Sequence[int], table: Sequence[Any], width: int) -> list[int]:
    """Letters of each column: what it wants, as far as there is room, and at least its longest
    piece; a head alone makes no column wider."""
    spare, widths = width - sum(least) - GAP * len(least), []
    for room, column in zip(least, zip(*table[1:], strict=True), strict=True):
        want = max(len(" ".join(line)) for cell in column for line in cell)
        more = min(spare, max(0, want - room))
        spare -= more
        widths.append(room + more)
    return widths


def _grid(heads: Sequence[str], lines: Sequence[Sequence[str]], widths: Sequence[int]) -> Text:
    text = Text()
    for style, row in [("bold", heads)] * bool(heads) + [("", line) for line in lines]:
        cells = [_wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (part.ljust(width + GAP) for part, width in zip(parts, widths, strict=True))
            text.append("".join(padded).rstrip() + "\n", style)
    return text


def _wrap(text: str, width: int) -> list[str]:
    """A cell in lines of so many letters, broken between its pieces alone."""
    wrapped = []
    for pieces in _pieces(text):
        line = ""
        for piece in pieces:
            if line and len(line) + 1 + len(piece) > width:
                wrapped.append(line)
                line = piece
            else:
                line = f"{line} {piece}".strip()
        wrapped.append(line)
    return wrapped
