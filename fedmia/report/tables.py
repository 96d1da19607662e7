"""A table as text, which page and terminal draw alike, and what its heads say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmia.recording.branches import BRANCHES
from fedmia.records.attack_rows import Json
from fedmia.records.fields import BOTH, NUMBER, PNG, Field, P, fields_of
from fedmia.report.words.numbers import DASH, TOGETHER, format_p

AUC = "AUC [low, high]"
# What the head of a column says.
TITLES = {
    "attack": "A method that guesses whether an image was used for training",
    AUC: "How often the attack ranks a random member over a random non-member (0.5: guessing), and "
    f"its interval {TOGETHER.format('of a kind')}",
    "AUC": "How often the attack ranks a random member over a random non-member; 0.5: guessing",
    **{name: f"AUC of the same attack on {one.head}" for name, one in BRANCHES.items() if one.head},
    "TPR at 1 % FPR": "Share of members found where 1 of 100 non-members is taken for a member; "
    "guessing: 0.01",
    "n": "Number of scored images: members + non-members; of so many subjects",
    "difference": "The first minus the second, with its interval",
    "defence": "What the client does against leakage, and what that guarantees",
    "probe": "A simple classifier on the encoder's outputs: a measure of its use",
    "epsilon": "Guaranteed limit of leakage; smaller is stronger, over 20 means little",
    "score of a set": "How a set of images gets one score",
    "sets": "Number of sets of images",
    "client": "Number of the client",
    "subject": "To which images belong, such as a patient or a customer",
    "clients": "Number of clients, and whether they defend themselves",
    "images": "Number of images, of a set and of those that it is compared with",
    "round": "Round of the federation; * after a crafted update",
    "query budget": "Number of images that the attacker may have embedded",
    "known members": "Number of members that the attacker knows (and as many non-members)",
    "queries": "Number of images that the attacker had embedded",
    "members": "Number of scored members",
    "non-members": "Number of scored non-members",
    "test images": "Number of images on which the probe was tested",
}


def head_title(head: str) -> str:
    """What the head of a column says that no row declares; empty where it says all by itself.

    Args:
        head: of the column, `, 95 %` after what has an interval.

    Returns:
        The text of its `title`.
    """
    return TITLES.get(head.replace("\n", " ").partition(", 95 %")[0], "")


@dataclass(frozen=True)
class TextCell:
    """Text, and lines under it that are set smaller.

    Attributes:
        text: the first line.
        small: lines under it, set smaller.
        css: class of the page's style.
        title: of the head of a column, what it says; empty: see `head_title`.
        picture: PNG in base 64 in place of the text; empty: none.
    """

    text: str
    small: tuple[str, ...] = ()
    css: str = ""
    title: str = ""
    picture: str = ""


@dataclass(frozen=True)
class Table:
    """A head, and rows of as many cells.

    Attributes:
        head: names of the columns.
        rows: each with as many cells; a string is a cell of one line.
        marked: places of the rows that are set in bold.
    """

    head: Sequence[str | TextCell]
    rows: Sequence[Sequence[str | TextCell]]
    marked: Collection[int] = ()


def name_of(head: str | TextCell) -> str:
    """The first line of a cell: of a head, the name of the column."""
    return head if isinstance(head, str) else head.text


Head = str | TextCell
Cell = str | Callable[[Any], str | TextCell]  # a field of a row, or what makes the cell of it


def listing(
    rows: Iterable[Any], columns: Mapping[Head, Cell], marked: Callable[[Any], bool] | None = None
) -> Table:
    """A table of rows of one kind.

    Args:
        rows: of the report.
        columns: head -> a field of a row, or what makes the cell of a row.
        marked: rows that are set in bold.

    Returns:
        The table.
    """
    rows = [*rows]
    lines = [[_cell(row, of) for of in columns.values()] for row in rows]
    bold = [at for at, row in enumerate(rows) if marked and marked(row)]
    return Table([*columns], lines, bold)


def _cell(row: Any, of: Cell) -> str | TextCell:
    if callable(of):
        return of(row)
    field = fields_of(type(row))[of]
    if field.unit == PNG and (value := field.value(row)) is not None:
        return TextCell("", picture=value)
    return text_of(field, row)


def head_of(kind: Any, name: str) -> TextCell:
    """The head of a column, as a class of rows declares it.

    Args:
        kind: of the rows.
        name: of its field.

    Returns:
        The head, which says what the column is.
    """
    field = fields_of(kind)[name]
    return TextCell(field.head or name, title=sentence(field.help))


def columns_of(kind: Any, *names: str) -> dict[Head, Cell]:
    """The columns of rows of a class, as it declares them.

    Args:
        kind: of the rows.
        names: of its fields; none: all that have a head, by their places.

    Returns:
        Head, which says what the column is -> the field.
    """
    headed = sorted((f for f in fields_of(kind).values() if f.head), key=lambda f: f.place)
    return {head_of(kind, name): name for name in names or [f.name for f in headed]}


def sentence(help: str) -> str:
    """The help of a field with a capital; what says when it is null is left out."""
    first = help.partition("; null")[0]
    return first[:1].upper() + first[1:]


def text_of(field: Field, row: Any) -> str:
    """A field of a row as a reader sees it: `0.64 [0.55, 0.72]`, `1,200`, `yes`, or a dash.

    Args:
        field: of the row's class.
        row: that has it.

    Returns:
        The text.
    """
    value = field.value(row)
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if field.kind == NUMBER else str(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or DASH
    if not isinstance(value, float):
        return str(value)
    if field.unit == P:
        return format_p(value)
    sign = "+" * field.signed
    by_fill = {fills: getattr(row, name) for name, fills in field.parts}
    together = [by_fill.get((end,)) for end in ("low", "high")]
    limits = by_fill.get(BOTH) if None in together else together
    if limits is None or isinstance(limits, dict):
        return f"{value:{sign}.{field.digits}f}"
    texts = [f"{one:{sign}.{field.digits}f}" for one in (value, *limits)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]".replace(" ", "\N{NO-BREAK SPACE}")


def flat(values: Json, before: str = "") -> list[tuple[str, str]]:
    """(dotted key, text) of every leaf of a nested mapping.

    Args:
        values: a nested mapping.
        before: prefix of every key.

    Returns:
        Key and text of each leaf, in order.
    """
    leaves: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            leaves += flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            leaves.append((name, ", ".join(map(str, value)) or "none"))
        else:
            leaves.append((name, "none" if value is None else str(value)))
    return leaves
