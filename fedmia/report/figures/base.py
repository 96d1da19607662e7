"""What a figure of a report is: its name, its place, what draws it, and its words."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from fedmia.records.rows import Report
from fedmia.report.figures import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ReportFigure(abc.ABC):
    """One figure of a report, declared in one class.

    Attributes:
        name: of its files and of `Run.figure`.
        place: where `page.j2` shows it; a place that the page does not name is a section of its
            own, with this title.
        report: whose rows it shows.
    """

    name: str
    place: str = "Other figures"

    def __init__(self, report: Report) -> None:
        self.report = report

    def draw(self) -> Figure | None:
        """The figure, in the style of all; None where the report lacks the data."""
        return canvas.apply_style(self.plot)()

    @abc.abstractmethod
    def plot(self) -> Figure | None:
        """The figure in matplotlib's current style; None where the report lacks the data."""

    @abc.abstractmethod
    def caption(self) -> str:
        """What it shows and by which method, below it; of a figure that was drawn."""

    @abc.abstractmethod
    def alt(self) -> str:
        """What a reader who cannot see it must know: what it shows, and its main numbers."""


def count(number: int, noun: str) -> str:
    """`1 attack`, `1,200 clients`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
