"""A study read from its folder: finished, at work, or ended before it compared its runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pandas as pd

from fedmia.settings.commands.study import Study, tree_key
from fedmia.settings.errors import InputError
from fedmia.settings.tree import from_tree
from fedmia.settings.values import disk_path
from fedmia.storage.runfolder import RunFolder, check_format, damaged
from fedmia.study import folder as folders
from fedmia.study.gather import Finished, gather
from fedmia.study.result import STUDY, StudyResult
from fedmia.study.scheduler import explain_exit
from fedmia.table import COLUMNS
from fedmia.untrusted.text import read_json


def open_study(folder: str | Path, *, trust_plugins: bool = False) -> StudyResult:
    """Open the folder of a study that `run_study` or `fedmia study` wrote, or is at work in: then
    it is read as far as its runs are finished.

    Args:
        folder: of the study.
        trust_plugins: as of `open_run`, for each of its runs, and for views from outside.

    Returns:
        The study.

    Raises:
        InputError: the folder holds no study.
    """
    path = Path(disk_path(folder))
    if not (path / STUDY).is_file():
        return open_unfinished(path, trust_plugins)
    with damaged(path, STUDY):
        about = read_json(path / STUDY)
        check_format(f"study '{folder}'", about)
        study = StudyResult(path, about, trust_plugins)
    # Runs that were added since, by a command that has not ended.
    on_disk = {run.path.name for run in RunFolder(path / "cells").inside() if run.has_report()}
    newer = on_disk - {cell.name for cell in study.cells if cell.path}
    goes_on = newer and RunFolder(path).has_settings()
    return open_unfinished(path, trust_plugins) if goes_on else study


def open_unfinished(path: Path, trust_plugins: bool) -> StudyResult:
    """A study as far as its runs are finished; nothing is written into its folder.

    Args:
        path: of the folder.
        trust_plugins: whether plugins from outside that its settings name are imported.

    Returns:
        The study, its sentence and notes over the finished runs.

    Raises:
        InputError: the folder holds no study, or one with plugins that are not trusted.
    """
    place = RunFolder(path, trust_plugins)
    if not place.has_settings() or folders.MARK not in place.facts():
        raise InputError(f"folder '{path}' is no study: no {STUDY} in it")
    with damaged(path, place.config.name):
        settings = from_tree(Study, place.tree())
    names, logs = folders.names(settings.cells), sorted((path / "failed").glob("*.log"))
    failed = {log.stem: explain_exit(1, log, {}) for log in logs}
    study, rows = gather(path, settings, settings.cells, names, _finished(path, settings), failed)
    study.trust_plugins = trust_plugins
    study.table = pd.DataFrame(rows, columns=list(COLUMNS))
    study.add_words()
    return study


def _finished(path: Path, settings: Study) -> Finished:
    """The finished runs of a folder by the key of their settings; a damaged one is none."""
    keys = {tree_key(cell.tree): cell.key for cell in settings.cells}
    finished = {}
    for run in RunFolder(path / "cells").inside():
        with suppress(InputError):
            key = keys.get(folders.settings_of(run.path) or "")
            if key is not None and (report := run.complete_report()) is not None:
                finished[key] = run.path, report
    return finished
