"""A view of a study, and how one is written: JSON, a page, figures, a table in the terminal.

A view says which rows it has, what it pairs, which figure it draws and what sentence a reader takes
home. The runs, their folder, the page and the terminal are the same for all.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console, RenderableType

from fedmia.cli.command import Invocation
from fedmia.report.page import picture, templates
from fedmia.report.publish import json_text
from fedmia.report.summary import failures, print_summary
from fedmia.report.tables import Table, flat
from fedmia.report.verdict import UNSOUND
from fedmia.storage import durable
from fedmia.study import formats
from fedmia.study.engine import Study

MARK = " ‡"


@dataclass(frozen=True)
class View(abc.ABC):
    """One way to read a study. By itself it is a section of the sweep's page, and what it reports
    lies in `sweep.json` under `views`.

    Attributes:
        title: of its section.
        about: what stands under its tables.
        captions: of its figures.
    """

    title: ClassVar[str] = ""
    about: ClassVar[str] = ""
    captions: ClassVar[Mapping[str, str]] = {}

    @abc.abstractmethod
    def report(self, study: Study) -> Any:
        """What it makes of the runs: what JSON holds, with a `sentence`."""

    @abc.abstractmethod
    def tables(self, report: Any) -> Mapping[str, Table]:
        """Its tables by name; those without rows are not shown."""

    def draw(self, report: Any) -> Mapping[str, bytes | None]:
        """Name -> PNG; None for what there are no numbers for."""
        return {}

    def figures(self, report: Any) -> dict[str, bytes]:
        """Name -> PNG of what could be drawn."""
        return {name: png for name, png in self.draw(report).items() if png is not None}

    def section(self, report: Any) -> dict[str, Any]:
        """What the page's template shows of it."""
        return {
            "title": self.title,
            "sentence": report["sentence"],
            "about": self.about,
            "tables": self.tables(report),
            "pictures": self.pictures(self.figures(report)),
        }

    def pictures(self, figures: Mapping[str, bytes]) -> dict[str, tuple[str, str]]:
        """The figures with their captions; one without a caption has its name."""
        return {name: picture(self.captions.get(name, name), png) for name, png in figures.items()}


@dataclass(frozen=True)
class StudyPage(View):
    """A view with a page of its own, FILE.html, and a table in the terminal.

    Attributes:
        file: name of the page and of its template.
        keeps_json: whether FILE.json holds its report; `--json` prints that of every view.
        beside: figures that are files of their own, too: name -> path in the folder.
        folders: where its template lies, if not among those of the reports.
    """

    file: ClassVar[str]
    keeps_json: ClassVar[bool] = True
    beside: ClassVar[Mapping[str, str]] = {}
    folders: ClassVar[Sequence[Path]] = ()

    def values(self, report: Any, out: Path) -> dict[str, Any]:
        """What else the template asks for; `out`: folder of the runs."""
        return {}

    @abc.abstractmethod
    def terminal(self, report: Any) -> RenderableType:
        """The table of the terminal."""

    def more(self, report: Any) -> Callable[[Console], None]:
        """Prints what stands under that table: the runs that failed."""
        return failures(report.get("cells", ()))

    def page(self, report: Any, figures: Mapping[str, bytes], out: Path = Path()) -> str:
        """The whole HTML document; every string in the report is escaped.

        Args:
            report: what `report` returned.
            figures: name -> PNG bytes.
            out: folder of the runs.

        Returns:
            The HTML text.
        """
        cells = report.get("cells", ())
        values = {
            "tables": self.tables(report),
            "pictures": self.pictures(figures),
            "missing": [(c["name"], c["reason"] or c["state"]) for c in cells if not c["path"]],
            "about": flat(report["config"]),
        }
        template = templates(*self.folders).get_template(f"{self.file}.j2")
        return template.render(report=report, **values | self.values(report, out))

    def write(self, report: Any, out: Path) -> Path:
        """Write all files into `out`; the page's.

        Args:
            report: what `report` returned.
            out: folder of the study.

        Returns:
            The page's path.
        """
        figures = self.figures(report)
        for name in figures.keys() & self.beside.keys():
            durable.make_folder((out / self.beside[name]).parent, out)
            durable.write({out / self.beside[name]: figures[name]})
        page = out / f"{self.file}.html"
        files: dict[Path, bytes | str] = {page: self.page(report, figures, out)}
        if self.keeps_json:
            files[out / f"{self.file}.json"] = json_text(report)
        durable.write(files)
        return page

    def show(self, report: Any, invocation: Invocation, page: Path | None) -> None:
        """Print the report: as JSON, as its sentence alone, or as a table and where its page is.

        Args:
            report: what `report` returned.
            page: its path; None where none was written.
        """
        print_summary(
            report, lambda: self.terminal(report), page, json=invocation.json,
            quiet=invocation.quiet, more=self.more(report),
        )  # fmt: skip


def study_report(
    study: Study, sentence: str, before: Mapping[str, Any], after: Mapping[str, Any],
    notes: Sequence[str], config: Mapping[str, Any], runs: str = "runs",
) -> Any:  # fmt: skip
    """What the file of every study holds, `before` and `after` how many runs are finished.

    Args:
        sentence: what a reader should take home.
        before: entries before the counts of runs.
        after: entries after them.
        notes: what a reader must know.
        config: the settings as the command's file has them.
        runs: what the study is of.

    Returns:
        What JSON holds.
    """
    return {
        "format": formats.FORMAT,
        "sentence": sentence,
        **before,
        **study.counts(),
        **after,
        "notes": notes,
        "config": config,
        "timing": study.timing(runs),
    }


def note_left_out(names: Sequence[str]) -> list[str]:
    """The note on runs without a result."""
    return [f"Left out of every mean: {', '.join(names)}."] if names else []


def mark(verdicts: Iterable[str]) -> str:
    """The sign behind the name of runs whose AUCs show no leak alone, whatever they are."""
    return MARK if set(verdicts) & set(UNSOUND) else ""


def note_doubtful_verdicts(points: Iterable[Any], runs: str) -> list[str]:
    """The note on verdicts under which an AUC is no leak alone."""
    codes = {code for point in points for code in point["verdicts"]} & set(UNSOUND)
    which = f"{MARK.strip()} In {runs.lower()} with the verdict {' or '.join(sorted(codes))}"
    return [f"{which} an AUC over 0.5 shows no leak: see the page of the run."] if codes else []
