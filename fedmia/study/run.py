"""A study from its settings to its folder: the runs, the table, the page."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import torch
from rich.console import Console

from fedmia import table
from fedmia.cli.command import FAILED, INTERRUPTED, Invocation
from fedmia.config.experiment import Experiment
from fedmia.config.study import Study
from fedmia.options import registry
from fedmia.options.errors import InputError
from fedmia.records.defence_rows import EpsilonRow
from fedmia.records.rows import Report
from fedmia.report.figures import canvas
from fedmia.report.page import picture, templates
from fedmia.report.publish import json_text
from fedmia.report.tables import flat
from fedmia.runtime.cores import count_cores
from fedmia.storage import durable
from fedmia.storage.manifest import FIGURES
from fedmia.study.columns import screen
from fedmia.study.engine import make_runs, side_by_side
from fedmia.study.folder import StudyFolder
from fedmia.study.forecasts import study_forecasts
from fedmia.study.launch import Start, add_digests, launcher_of
from fedmia.study.outlook import plan_study
from fedmia.study.result import FORMAT, PAGE, STUDY, StudyResult, doubtful, left_out

STATES = ("finished", "failed", "not run")


def run_command(invocation: Invocation, stop: Event, start: Start | None = None) -> int:
    """`fedmia study`: do the runs that are not finished yet, write what compares all, print it.

    Args:
        invocation: what the user asked for.
        stop: set when the user interrupts.
        start: makes the command line of a run; None for the usual one.

    Returns:
        The exit code.

    Raises:
        InputError: no folder, or one of something else; an encoder that an audit refuses.
    """
    if invocation.plan:
        return plan_study(invocation, stop)
    quiet = invocation.quiet or invocation.json
    study, code = run_cells(invocation.settings, invocation.out, stop, quiet, start)
    if invocation.json:
        sys.stdout.write(json_text(study.about))
    else:
        show(study, invocation.quiet)
    return code


def run_cells(
    settings: Study, out: Path | None, stop: Event, quiet: bool = False, start: Start | None = None
) -> tuple[StudyResult, int]:
    """Do the runs that are not finished yet, and write what compares all.

    Args:
        settings: of the study.
        out: its folder.
        stop: set when the user interrupts.
        quiet: show no progress.
        start: makes the command line of a run; None for the usual one.

    Returns:
        The study, and the exit code.

    Raises:
        InputError: no folder, or one of something else; an encoder that an audit refuses.
        DiskError: a file could not be written or read; finished runs stay, and begun ones.
    """
    if out is None:
        raise InputError("--out FOLDER is missing: the runs are kept there")
    for name in settings.views:
        registry.build("view", name, {})
    began, cells, work = time.perf_counter(), settings.cells, launcher_of(settings, start)
    if settings.encoders:
        torch.set_num_threads(cells[0].threads or count_cores())
        cells = tuple(add_digests(cells))
    elif not quiet:
        say_forecasts(settings)
    folder = StudyFolder(out, cells, settings.tree(), work.is_resumable, settings.keep_snapshots)
    hint = "the same command again goes on with this study"
    with durable.explain(hint=hint), folder.locked():
        failed = make_runs(folder, side_by_side(settings), stop, quiet, work.start)
        study = _gather(folder, settings, failed)
        study.about["timing"]["total_s"] = round(time.perf_counter() - began, 3)
        write(study)
    if stop.is_set():
        print(f"fedmia: {hint}", file=sys.stderr)
    return study, INTERRUPTED if stop.is_set() else FAILED if failed else 0


def say_forecasts(settings: Study) -> None:
    """Print before the first run which defences will guarantee nothing worth the name."""
    runs = [cell.first for cell in settings.cells if isinstance(cell.first, Experiment)]
    for line in study_forecasts(runs):
        print(f"fedmia: {line}", file=sys.stderr)


def _gather(folder: StudyFolder, settings: Study, failed: dict[str, str]) -> StudyResult:
    """The study as far as it is done; its table is written."""
    finished, points = folder.finished(), len(settings.points)
    cells: list[dict[str, Any]] = []
    rows: list[Any] = []
    for cell in (cell for i in range(points) for cell in folder.runs[i::points]):
        state = {"point": cell.point, "grid": dict(cell.grid), "seed": cell.seed}
        if cell.key in finished:
            path, report = finished[cell.key]
            place = {"run": path.name, "seed": cell.seed, "point": cell.point}
            rows += [{**row, **place} for row in table.load_rows(path, lambda r=report: r)]  # type: ignore[misc]
            where = path.relative_to(folder.out).as_posix()
            cells.append(
                {"name": path.name, **state, "state": "finished", "path": where, **facts(report)}
            )
        else:
            lost = {"state": "failed" if cell.key in failed else "not run"}
            reason = {"reason": failed.get(cell.key)}
            cells.append({"name": folder.names[cell.key], **state, **lost, **reason})
    states = Counter(cell["state"] for cell in cells)
    if rows:
        table.write(rows, folder.out)
    about = {
        "format": FORMAT,
        "sentence": "",
        "views": list(settings.views),
        "seeds": sorted({cell.seed for cell in folder.runs}),
        **{name.replace(" ", "_"): states[name] for name in STATES},
        "notes": [],
        "cells": cells,
        "settings": settings.tree(),
        "timing": {},
    }
    return StudyResult(folder.out, about, True)


def facts(report: Report) -> dict[str, Any]:
    """What `study.json` keeps of a run's report beside the numbers, which the table has."""
    rows = report["attacks"]
    return {
        "verdict": report["verdict"],
        "verdict_code": report["verdict_code"],
        "commit": report["versions"].get("commit"),
        "seconds": report["timing"].get("total_s"),
        "not_run": {lost["attack"]: lost["reason"] for lost in report["not_run"]},
        "choices": {row["name"]: row["choices"] for row in rows if row["choices"]},
        "under_attack": [row["name"] for row in rows if row["under_attack"]],
        "epsilon": spent(report),
    }


def spent(report: Report) -> EpsilonRow | None:
    """The largest epsilon of a defended client, or what the server's aggregation promises where no
    client defends itself; None where one states none, or where units or deltas differ."""
    stated = [c["defence"]["epsilon"] for c in report["clients"] if c["defence"] is not None]
    server: Any = report.get("aggregation")
    stated = stated or ([server["epsilon"]] if server else [])
    known = [e for e in stated if e is not None]
    alike = {(e.get("unit"), e.get("delta")) for e in known}
    if len(alike) != 1 or len(known) < len(stated):
        return None
    return max(known, key=lambda e: float("inf") if e["value"] is None else e["value"])


def write(study: StudyResult) -> None:
    """Fill in what the views say, and write study.json, study.html and figures/NAME.png.

    Args:
        study: whose table is written.

    Raises:
        DiskError: a file cannot be written.
    """
    views, about, out = [*study.views.values()], study.about, study.folder
    notes = [note for view in views for note in view.notes(study)]
    codes = [cell.verdict_code for cell in study.cells]
    about["sentence"] = views[0].sentence(study)
    about["notes"] = [*notes, *doubtful(codes), *left_out(study.cells)]
    drawings = [
        (name, view.captions.get(name, name), draw)
        for view in views
        for name, draw in view.figures(study).items()
    ]
    figures = {n: (text, f) for n, text, draw in drawings if (f := draw()) is not None}
    pngs = {name: (text, canvas.png(figure)) for name, (text, figure) in figures.items()}
    page = (
        templates()
        .get_template("study-page.j2")
        .render(
            report=about,
            title=views[0].title,
            views=[
                ((view.sentence(study) if i else ""), [s for s in view.sections(study) if s.rows])
                for i, view in enumerate(views)
            ],
            pictures={name: picture(text, png) for name, (text, png) in pngs.items()},
            links=[
                (c.name, quote(f"{c.path}/report.html"), c.verdict) for c in study.cells if c.path
            ],
            missing=list(study.failed.items()),
            about=flat(study.settings),
        )
    )
    if pngs:
        durable.make_folder(out / FIGURES, out)
    files: dict[Path, bytes | str] = {out / STUDY: json_text(about), out / PAGE: page}
    files |= {out / FIGURES / f"{name}.png": png for name, (_, png) in pngs.items()}
    durable.write(files)


def show(study: StudyResult, quiet: bool) -> None:
    """Print the tables of a study, the runs that failed, and its sentences.

    Args:
        study: as far as it is done.
        quiet: print its sentence alone.
    """
    console = Console()

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    if not quiet:
        views = [*study.views.values()]
        for section in (one for view in views for one in view.sections(study)):
            if section.brief and section.rows:
                console.print(screen(*section.brief_rows(2)))
        for cell in study.cells:
            if cell.reason:
                say(f"{cell.name} failed: {cell.reason}")
        for note in study.about["notes"]:
            say(note)
        for view in views[1:]:
            say(view.sentence(study))
    say(study.sentence)
    if not quiet:
        say(f"Report: {study.folder / PAGE}")
