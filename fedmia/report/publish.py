"""A finished run or audit made public: its report, its files, what is printed of it."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from fedmia import table
from fedmia.records import RunScores
from fedmia.report.build import build_report, strict
from fedmia.report.client_table import clients_csv
from fedmia.report.curves import FILE, to_npz
from fedmia.report.page import page
from fedmia.report.rows import Report, SweepRow
from fedmia.report.selection import crowded
from fedmia.report.terminal import render
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


def json_text(report: Mapping[str, object]) -> str:
    """`report` as strict JSON, indented, ending in a newline.

    Raises:
        ValueError: a number that is not finite.
    """
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def scores_csv(run: RunScores) -> str:
    """CSV text with columns image, truth (1 member, 0 not), client, label, and one an attack.

    `client` is empty for non-members. Scores have 9 digits, which tell any two float32 apart.
    """
    members = [a.scores_members for a in run.attacks]
    nonmembers = [a.scores_nonmembers for a in run.attacks]
    nobody = [""] * len(run.nonmember_ids)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["image", "truth", "client", "label", *(a.name for a in run.attacks)])
    for truth, *columns in (
        (1, run.member_ids, run.member_client, run.member_labels, *members),
        (0, run.nonmember_ids, nobody, run.nonmember_labels, *nonmembers),
    ):
        for image, client, label, *scores in zip(*columns, strict=True):
            lines.writerow([image, truth, client, label, *(f"{s:.9g}" for s in scores)])
    return text.getvalue()


def sweep_csv(rows: Sequence[SweepRow]) -> str:
    """CSV text of `report["sweep"]`: one line an attack and value, empty where it could not run."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    head = ["attack", "sweep", "value", "known", "n_members", "n_nonmembers", "queries", "auc"]
    head += ["auc_low", "auc_high", "auc_low_simultaneous", "auc_high_simultaneous"]
    lines.writerow([*head, "accuracy", "tpr_at_1_percent_fpr", "not_run"])
    for row in rows:
        place = [row["attack"], row["sweep"], row["value"], row["known"]]
        if row["not_run"] is not None:
            lines.writerow([*place, *[None] * 10, row["not_run"]])
            continue
        counts = [row["n_members"], row["n_nonmembers"], row["queries"]]
        ends = [*(row["auc_ci"] or (None, None)), *(row["auc_ci_simultaneous"] or (None, None))]
        rates = [row["accuracy"], row["tpr_at_fpr"]["0.01"]]
        lines.writerow([*place, *counts, row["auc"], *ends, *rates, None])
    return text.getvalue()


def write_report(
    folder: Path, run: RunScores, report: Report, figures: Mapping[str, bytes]
) -> list[Path]:
    """Write report.json, report.html, scores.csv, clients.csv where the page cannot show every
    client, sweep.csv where there was a sweep, curves.npz where a client attacked actively,
    figures/NAME.png, and every number in table.parquet and table.csv; returns their paths.

    `report` is what `build_report(run)` returned, with `timing` filled in by the caller if it was
    not known before; `figures` is what `draw_all` returned.
    """
    texts = {
        "report.json": json_text(report),
        "report.html": page(report, figures),
        "scores.csv": scores_csv(run),
    }
    if crowded(report):
        texts["clients.csv"] = clients_csv(report)
    if swept := report.get("sweep"):
        texts["sweep.csv"] = sweep_csv(swept)
    files = {name: text.encode() for name, text in texts.items()}
    if run.curves is not None:
        files[FILE] = to_npz(run.curves)
    files |= {f"figures/{name}.png": data for name, data in figures.items()}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return [*(folder / name for name in files), *table.write(table.flatten(report), folder)]
