"""A table as text, which page and terminal draw alike, and what its heads say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmia.records.attack_rows import Json

AUC = "AUC [low, high]"
# What the head of a column says.
TITLES = {
    "attack": "A method that guesses whether an image was used for training",
    AUC: "How often the attack ranks a random member over a random non-member (0.5: guessing), and "
    "the interval on which the verdict rests: all of its kind are right at once with 95 %",
    "AUC": "How often the attack ranks a random member over a random non-member; 0.5: guessing",
    "untrained": "AUC of the same attack on an encoder that was not trained",
    "placebo": "AUC of the same attack on an encoder that was trained on other images",
    "posers": "AUC of the same attack on non-members in the place of members",
    "TPR at 1 % FPR": "Share of members found where 1 of 100 non-members is taken for a member",
    "accuracy": "Share of right decisions, members and non-members weighted equally",
    "n": "Number of scored images: members + non-members",
    "difference": "The first minus the second, with its interval",
    "p-value": "Chance of so high a score if the set was not trained on",
    "Holm": "The p-value, corrected for all clients",
    "null": "The AUC where nothing can leak: mean, range of 95 %",
    "defence": "What the client does against leakage, and what that guarantees",
    "probe": "A simple classifier on the encoder's outputs: a measure of its use",
    "epsilon": "Guaranteed limit of leakage; smaller is stronger, over 20 means little",
    "loss": "Mean training loss of the honest clients",
    "kNN": "Accuracy of a nearest-neighbour probe of the encoder",
}


@dataclass(frozen=True)
class TextCell:
    """Text, and lines under it that are set smaller. `css`: a class of the page's style.

    Attributes:
        text: the first line.
        small: lines under it, set smaller.
        css: class of the page's style.
    """

    text: str
    small: tuple[str, ...] = ()
    css: str = ""


@dataclass(frozen=True)
class TextRow:
    """Cells in the order of the table's head; text is a cell of one line. `css`: as of a cell.

    Attributes:
        cells: one for each column; a string is a cell of one line.
        css: class of the page's style.
    """

    cells: Sequence[str | TextCell]
    css: str = ""


@dataclass(frozen=True)
class Table:
    """A head, and rows of as many cells.

    Attributes:
        head: names of the columns.
        rows: each with as many cells.
    """

    head: Sequence[str | TextCell]
    rows: Sequence[TextRow]


Cell = Callable[[Any], str | TextCell]


def listing(
    rows: Iterable[Any], columns: Mapping[str, Cell], marked: Callable[[Any], bool] | None = None
) -> Table:
    """A table of rows of one kind.

    Args:
        rows: of the report.
        columns: head -> what makes the cell of a row.
        marked: rows that are set in bold.

    Returns:
        The table.
    """
    lines = [
        TextRow([make(row) for make in columns.values()], "leaks" * bool(marked and marked(row)))
        for row in rows
    ]
    return Table([*columns], lines)


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
