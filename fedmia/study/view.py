"""A view of a study: rows out of its table, figures, a sentence. One file holds one view.

A view is a list of sections, and each is a table of rows of one class with how to read it. The page
shows every column, the terminal and LaTeX the first ones.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedmia.report.tables import Table
from fedmia.study.columns import Columns, in_one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedmia.study.result import StudyResult

Drawing = Callable[[], "Figure | None"]  # draws None where there are no numbers


@dataclass(frozen=True)
class Section:
    """A part of a view.

    Attributes:
        title: over it.
        columns: of `fedmia.study.columns.columns_of`: head -> what makes the cell of a row.
        rows: of its table; a section without rows is not shown.
        figures: names of the figures above the table.
        brief: how many columns the terminal and LaTeX show; 0: they show no such table.
        about: how to read it.
        limits: what its intervals hold for, as LaTeX says it below the table.
        marked: whether a row is set in bold; None: none is.
    """

    title: str
    columns: Columns
    rows: Sequence[Any]
    figures: tuple[str, ...] = ()
    brief: int = 0
    about: str = ""
    limits: str = ""
    marked: Callable[[Any], bool] | None = None

    def table(self) -> Table:
        """The whole table, as the page shows it."""
        lines = [[cell(row, None) for cell in self.columns.values()] for row in self.rows]
        bold = [at for at, row in enumerate(self.rows) if self.marked and self.marked(row)]
        return Table([*self.columns], lines, bold)

    def brief_rows(self, digits: int | None = None) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of the short table as text; of a cell's small lines all but the first.

        Args:
            digits: behind the point of numbers over models; None: as declared.
        """
        columns = dict([*self.columns.items()][: self.brief])
        cells = [[in_one_line(cell(row, digits)) for cell in columns.values()] for row in self.rows]
        return [head.text for head in columns], cells


@dataclass(frozen=True)
class StudyView(abc.ABC):
    """A view of a study: one way to read it.

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
