"""A finished run or audit made public: its report, its files, what is printed of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from fedmia import table
from fedmia.records import RunScores
from fedmia.records.client_rows import ClientRow, InferenceRow
from fedmia.records.rows import BROKEN, Report
from fedmia.report.build import build_report, to_json_types
from fedmia.report.clients import all_client_rows
from fedmia.report.csvs import clients_csv, scores_csv
from fedmia.report.curves import to_npz
from fedmia.report.datasets import inference_row
from fedmia.report.format import group_by_reason
from fedmia.report.page import page
from fedmia.report.selection import has_many_clients
from fedmia.report.shortnames import shorten_names
from fedmia.report.terminal import render
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.storage.durable import make_folder, write
from fedmia.storage.manifest import CLIENTS, CURVES, FIGURES, PAGE, REPORT, SCORES


def publish(run: RunScores, folder: Path | None, watch: Stopwatch) -> Report:
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
        report = build_report(run)
        if folder is not None:
            from fedmia.report.figures.draw import draw_all  # matplotlib takes its time

            figures = draw_all(run, report)
    report["timing"] = to_json_types(watch.timing() | dict(run.timing))
    if folder is not None:
        write_report(folder, run, report, figures)
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
    console.print(report["verdict"] if quiet else render(report), highlight=False, soft_wrap=quiet)
    if folder is not None and not quiet:
        console.print(f"Report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def say_not_run(
    report: Report, folder: Path | None = None, *, json: bool = False, quiet: bool
) -> None:
    """Say on standard error why attacks did not run, where no table says it; quiet, of those alone
    that broke. `folder` and `json` are not read: it stands in the place of `show`."""
    for names, reason in group_by_reason(report).items():
        if not quiet or reason.startswith(BROKEN):
            print(f"fedmia: not run: {names}: {reason}", file=sys.stderr)


def json_text(report: Mapping[str, object]) -> str:
    """`report` as strict JSON, indented, ending in a newline.

    Raises:
        ValueError: a number that is not finite.
    """
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def all_clients(run: RunScores, report: Report) -> tuple[Iterable[ClientRow], list[InferenceRow]]:
    """Rows of every client: the report's, or, where it lists only some, made once more.

    Args:
        run: the scores.

    Returns:
        Their rows, and those of the attacks on data sets.
    """
    if "client_counts" not in report:
        return report["clients"], report["dataset_inference"]
    tests = report["family"]["intervals"]
    inferences = to_json_types([inference_row(one, tests) for one in run.inferences])
    return map(to_json_types, all_client_rows(run)), inferences


def write_report(
    folder: Path, run: RunScores, report: Report, figures: Mapping[str, bytes]
) -> list[Path]:
    """Write report.json, report.html, scores.csv, clients.csv where the page cannot show every
    client, curves.npz where a client attacked actively,
    figures/NAME.png, and every number in table.parquet and table.csv; returns their paths.

    `report` is what `build_report(run)` returned, with `timing` filled in by the caller if it was
    not known before; `figures` is what `draw_all` returned.

    Args:
        folder: of the run.
        run: the scores.
        figures: name -> PNG bytes.

    Returns:
        The files that were written.

    Raises:
        DiskError: they cannot be written; those of before stay.
    """
    texts = {PAGE: page(report, figures), SCORES: scores_csv(run)}
    if has_many_clients(report):
        classes = max(len(client.classes) for client in run.clients)
        texts[CLIENTS] = clients_csv(*all_clients(run, report), classes)
    files = {name: text.encode() for name, text in texts.items()}
    if run.curves is not None:
        files[CURVES] = to_npz(run.curves)
    files |= {f"{FIGURES}/{name}.png": data for name, data in figures.items()}
    files |= table.contents(table.flatten(report)) | {REPORT: json_text(report).encode()}
    if figures:
        make_folder(folder / FIGURES, folder)
    by_path = {folder / name: data for name, data in files.items()}
    write(by_path)
    return [*by_path]
