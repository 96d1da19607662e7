"""A finished run or audit made public: its report, its files, what is printed of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from fedmia.records import Evaluation
from fedmia.records.rows import BROKEN, Report
from fedmia.report.build import build_whole, condense
from fedmia.report.csvs import exposed_csv, scores_csv
from fedmia.report.page import page
from fedmia.report.shortnames import shorten_names
from fedmia.report.terminal import render
from fedmia.report.words.attacks import not_run_by_reason, not_run_line
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.durable import make_folder, write
from fedmia.storage.json_rows import to_json
from fedmia.storage.manifest import CURVES, EXPOSED, FIGURES, PAGE, REPORT, SCORES
from fedmia.storage.results import contents, to_npz
from fedmia.table import flatten


def publish(run: Evaluation, folder: Path | None, watch: Stopwatch) -> Report:
    """The report of `run`, its `timing` read off `watch`; files and figures where a folder is
    given.

    Args:
        run: the scores.
        folder: where files are written; None to write none.
        watch: timed the run.

    Returns:
        The report.

    Raises:
        ValueError: scores that no number may be made of, naming the attack.
    """
    figures: dict[str, bytes] = {}
    run = shorten_names(run)
    with watch.part("report"):
        whole = build_whole(run)
        report = condense(whole)
        if folder is not None:
            from fedmia.report.figures.draw import draw_all  # matplotlib takes its time

            figures = draw_all(run, report)
    report = replace(report, timing=to_json(watch.timing() | dict(run.timing)))
    if folder is not None:
        write_report(folder, run, report, figures, whole)
    return report


def show(report: Report, folder: Path | None, *, json: bool, quiet: bool) -> None:
    """Print the report: as JSON, as its verdict alone, or as tables and where its page is.

    Args:
        folder: that holds the page; None where none was written.
        json: whether to print JSON alone.
        quiet: whether to print the verdict alone.
    """
    if json or quiet:
        say_not_run(report, quiet=True)
    if json:
        sys.stdout.write(json_text(report))
        return
    console = Console()
    console.print(report.verdict if quiet else render(report), highlight=False, soft_wrap=quiet)
    if folder is not None and not quiet:
        console.print(f"Report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def say_not_run(report: Report, *, quiet: bool) -> None:
    """Say on standard error why attacks did not run, where no table says it; quiet, of those alone
    that broke."""
    for names, reason in not_run_by_reason(report).items():
        if not quiet or reason.startswith(BROKEN):
            print(f"fedmia: {not_run_line(names, reason)}", file=sys.stderr)


def json_text(report: object) -> str:
    """A report, or what else is JSON, as strict JSON, indented, ending in a newline.

    Raises:
        ValueError: a number that is not finite.
    """
    as_json = partial(to_json, exact=True)  # of rows
    text = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False, default=as_json)
    return text + "\n"


def write_report(
    folder: Path,
    run: Evaluation,
    report: Report,
    figures: Mapping[str, bytes],
    whole: Report | None = None,
) -> list[Path]:
    """Write report.json, report.html, scores.csv, exposed.csv where there is a list of exposed
    members, curves.npz where a client attacked actively, figures/NAME.png and NAME.pdf, and every
    number in table.parquet and table.csv.

    Args:
        folder: of the run.
        run: the scores.
        report: what `build_report(run)` returned, with `timing` filled in by the caller if it was
            not known before.
        figures: what `draw_all` returned: name of a file -> bytes.
        whole: the report with every client that was scored, for the table; None: `report`.

    Returns:
        The files that were written.

    Raises:
        DiskError: they cannot be written; those of before stay.
    """
    pictures = {n.removesuffix(".png"): png for n, png in figures.items() if n.endswith(".png")}
    files = {PAGE: page(report, pictures, run).encode(), SCORES: scores_csv(run).encode()}
    if run.curves is not None:
        files[CURVES] = to_npz(run.curves)
    whole = whole or report
    if whole.exposed:
        files[EXPOSED] = exposed_csv(whole.exposed).encode()
    files |= {f"{FIGURES}/{name}": data for name, data in figures.items()}
    files |= contents(flatten(replace(whole, exposed=report.exposed)))
    files[REPORT] = json_text(report).encode()
    if figures:
        make_folder(folder / FIGURES, folder)
    by_path = {folder / name: data for name, data in files.items()}
    write(by_path)
    if "exposed.png" not in figures:  # of an audit that went on, and shows no images any more
        for path in (folder / FIGURES).glob("exposed.*"):
            path.unlink()
    return [*by_path]
