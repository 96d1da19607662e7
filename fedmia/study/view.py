"""A view of a study: rows out of its table, figures, a sentence. One file holds one view.

A view is a list of sections, and each is a table with how to read it. The page shows every column,
the terminal and LaTeX the first ones.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedmia.study.columns import DIGITS, Columns, cell, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedmia.report.tables import Table, TextCell
    from fedmia.study.result import StudyResult

Drawing = Callable[[], "Figure | None"]  # draws None where there are no numbers


@dataclass(frozen=True)
class Section:
    """A part of a view.

    Attributes:
        title: over it.
        columns: path of a value in a row -> head of its column.
        rows: of its table; a section without rows is not columns.
        figures: names of the figures above the table.
        brief: how many columns the terminal and LaTeX show; 0: they show no such table.
        about: how to read it; empty: what `report/templates/study-page.j2` says under this title.
    """

    title: str
    columns: Columns
    rows: Sequence[Any]
    figures: tuple[str, ...] = ()
    brief: int = 0
    about: str = ""

    def table(self) -> Table:
        """The whole table, as the page shows it."""
        return table(self.columns, self.rows)

    def brief_rows(self, digits: int = DIGITS) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of the short table as text; of a cell's small lines all but the first."""
        columns = dict([*self.columns.items()][: self.brief])
        lines = [[_in_one_line(cell(row, path, digits)) for path in columns] for row in self.rows]
        return [*columns.values()], lines


def _in_one_line(cell: str | TextCell) -> str:
    return cell if isinstance(cell, str) else " ".join((cell.text, *(cell.small[1:] or cell.small)))


@dataclass(frozen=True)
class View(abc.ABC):
    """One way to read a study.

    Attributes:
        title: of its page.
        captions: of its figures, by name.
    """

    title: ClassVar[str] = "Study"
    captions: ClassVar[Mapping[str, str]] = {}

    @abc.abstractmethod
    def sections(self, study: StudyResult) -> list[Section]:
        """What it shows, the most important part first."""

    @abc.abstractmethod
    def sentence(self, study: StudyResult) -> str:
        """What a reader should take home."""

    def figures(self, study: StudyResult) -> Mapping[str, Drawing]:
        """Name -> what draws a figure."""
        return {}

    def notes(self, study: StudyResult) -> list[str]:
        """What a reader of its numbers must know."""
        return []
