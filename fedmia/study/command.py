"""A study from its settings to its folder: the runs, the table, the page."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

import torch
from rich.console import Console

from fedmia.cli.command import Invocation
from fedmia.partitions.sizes import MOST_MEMBERS
from fedmia.report.figures import canvas
from fedmia.report.page import picture, templates
from fedmia.report.publish import json_text
from fedmia.report.tables import flat
from fedmia.runtime.cores import count_cores
from fedmia.settings import registry
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.commands.study import Study
from fedmia.settings.errors import InputError
from fedmia.storage import durable
from fedmia.storage.manifest import FIGURES
from fedmia.storage.results import write as write_table
from fedmia.study.columns import screen
from fedmia.study.engine import Start, add_digests, count_at_once, start_of
from fedmia.study.folder import StudyFolder
from fedmia.study.gather import gather
from fedmia.study.outlook import plan_study
from fedmia.study.result import PAGE, STUDY, StudyResult
from fedmia.study.scheduler import exit_code, going_on, run_jobs
from fedmia.study.words import failed_line


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
    began, cells = time.perf_counter(), settings.cells
    if settings.encoders:
        torch.set_num_threads(cells[0].threads or count_cores())
        cells = tuple(add_digests(cells))
    elif not quiet:
        say_forecasts(settings)
    folder = StudyFolder(out, cells, settings)
    at_once, start = count_at_once(settings), start or start_of(settings)
    threads = max(1, count_cores() // at_once)
    with going_on(stop), folder.locked():
        finished = folder.finished()
        missing = [cell for cell in folder.runs if cell.key not in finished]
        jobs = [folder.job(cell, start, threads) for cell in missing]
        failed = run_jobs(jobs, at_once, stop, quiet)
        finished = folder.finished()
        study, rows = gather(out, settings, folder.runs, folder.names, finished, failed)
        write_table(rows, folder.out)
        study.about["timing"]["total_s"] = round(time.perf_counter() - began, 3)
        write(study)
    return study, exit_code(stop, failed)


def say_forecasts(settings: Study) -> None:
    """Print which defences of a study will guarantee nothing worth the name.

    No image is read: a client counts as having the mean number of images. The run itself says the
    same of its smallest client. Each defence has one line: the first such settings, and how many
    others.
    """
    lines = dict[str, dict[str, str]]()  # of each defence, by its settings
    for experiment in (cell.first for cell in settings.points):
        if not isinstance(experiment, Experiment):
            continue
        # Without a number the most: what it cannot guarantee, nobody's fewer images can.
        members = experiment.split.members or MOST_MEMBERS
        images = members // max(1, len(experiment.honest_clients))
        for layer in experiment.defense:
            defense = layer.plugin("defense")
            line = defense.forecast(images, experiment.train, experiment.federation.rounds)
            if line is not None and experiment.layer_client_ids(layer):
                lines.setdefault(layer.name, {})[f"{defense} {line}"] = line
    for name, by_setting in lines.items():
        first, *others = by_setting.values()
        more = f"; of its other settings in this study, {len(others)} end likewise"
        print(f"fedmia: {name}: {first}{more * bool(others)}", file=sys.stderr)


def write(study: StudyResult) -> None:
    """Fill in what the views say, and write study.json, study.html and figures/NAME.png.

    Args:
        study: whose table is written.

    Raises:
        DiskError: a file cannot be written.
    """
    study.add_words()
    views, about, out = [*study.views.values()], study.about, study.folder
    pngs, pictures = dict[str, bytes](), dict[str, Any]()
    for view in views:
        for name, draw in view.figures(study).items():
            if (figure := draw()) is not None:
                pngs[name] = canvas.encode(figure)
                pictures[name] = picture(view.captions.get(name, name), pngs[name])
    page = (
        templates()
        .get_template("study-page.j2")
        .render(
            report=about,
            study=study,
            views=views,
            pictures=pictures,
            missing=list(study.failed.items()),
            about=flat(study.settings),
        )
    )
    if pngs:
        durable.make_folder(out / FIGURES, out)
    files: dict[Path, bytes | str] = {out / STUDY: json_text(about), out / PAGE: page}
    files |= {out / FIGURES / f"{name}.png": png for name, png in pngs.items()}
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
                heads, lines = section.brief_rows(2)
                table = screen(heads, lines, console.width)
                console.print(table, highlight=False, soft_wrap=True)
        for cell in study.cells:
            if cell.reason:
                say(failed_line(cell))
        for note in study.about["notes"]:
            say(note)
        for view in views[1:]:
            say(view.sentence(study))
    say(study.sentence)
    if not quiet:
        say(f"Report: {study.folder / PAGE}")
