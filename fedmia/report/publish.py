"""A finished run or audit made public: its report, its files, what is printed of it."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from fedmia.report.build import build_report, strict
from fedmia.report.files import json_text, write_report
from fedmia.report.rows import Report
from fedmia.report.terminal import render
from fedmia.results import RunScores
from fedmia.runtime.stopwatch import Stopwatch


def publish(run: RunScores, folder: Path | None, watch: Stopwatch) -> Report:
    """The report of `run`, its `timing` read off `watch`; files and figures where a folder is
    given.

    Raises:
        ValueError: scores that no number may be made of, naming the attack.
    """
    figures: dict[str, bytes] = {}
    with watch.part("report"):
        report = build_report(run)
        if folder is not None:
            from fedmia.report.figures.draw import draw_all  # matplotlib takes its time

            figures = draw_all(run, report)
    report["timing"] = strict(watch.timing() | dict(run.timing))
    if folder is not None:
        write_report(folder, run, report, figures)
    return report


def show(report: Report, folder: Path | None, *, json: bool, quiet: bool) -> None:
    """Print the report: as JSON, as its verdict alone, or as tables and where its page is."""
    if json:
        sys.stdout.write(json_text(report))
        return
    console = Console()
    console.print(report["verdict"] if quiet else render(report), highlight=False, soft_wrap=quiet)
    if folder is not None and not quiet:
        console.print(f"Report: {folder / 'report.html'}", highlight=False, soft_wrap=True)
