"""An audit from Python: options as of the command, and what the session hands over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmia.audit import run_audit
from fedmia.cli.command import Invocation
from fedmia.cli.commands import AUDIT
from fedmia.door.arguments import build_settings
from fedmia.door.results import interruptible, open_results, results_folder
from fedmia.encoders.memory import InMemory
from fedmia.encoders.vectors import VectorSet, as_vectors
from fedmia.records.rows import Report
from fedmia.report.publish import say_not_run
from fedmia.runs import Run
from fedmia.runtime.stopwatch import Stopwatch
from fedmia.settings.errors import InputError
from fedmia.storage.runfolder import RunFolder


def _say(report: Report, folder: object, *, json: bool, quiet: bool) -> None:
    """In place of the table that a terminal shows: a session shows its own."""
    say_not_run(report, quiet=quiet)


def audit(
    options: Mapping[str, Any], objects: InMemory, out: str | Path | None, quiet: bool, trust: bool
) -> Run:
    """Run an audit, and open its results.

    Args:
        options: as of `build_settings`.
        objects: what the session hands over in place of names.
        out: folder of the results; None: a temporary one.
        quiet: show no progress.
        trust: whether plugins from outside that the folder of a run names are imported.

    Returns:
        The audit.

    Raises:
        InputError: bad input, in one line, or no attack could run.
    """
    watch = Stopwatch(time.perf_counter())
    settings = build_settings(AUDIT, None, {**options, **objects.settings()}, trust)
    with results_folder(out) as folder, interruptible("attacks") as stop:
        invocation = Invocation(settings, folder, quiet)
        code = run_audit(invocation, watch, stop, _say, objects)
        if code and not RunFolder(folder).has_report():
            raise KeyboardInterrupt if stop.is_set() else InputError("every attack failed")
        return open_results(folder, temporary=out is None)


def take_groups(options: dict[str, Any]) -> tuple[Any, Any]:
    """The subjects of both sides where a session holds them.

    Args:
        options: of an audit; `groups` in memory become a name in them.

    Returns:
        Subjects of the members' images (n,) and of the others' (m,); None, None: they are not in
        memory, or images belong to none.

    Raises:
        InputError: something else than two arrays.
    """
    groups = options.get("groups")
    if groups is None or isinstance(groups, str | Path):
        return None, None
    if not isinstance(groups, tuple | list) or len(groups) != 2:
        raise InputError(
            "groups must be two arrays, a subject of each image of the members and of the others, "
            f"or the name of a column or a file; got {type(groups).__name__} of {len(groups)}"
        )
    options["groups"] = "in memory"
    return groups[0], groups[1]


def read_sides(
    sides: Mapping[str, Any], groups: tuple[Any, Any] = (None, None)
) -> tuple[dict[str, str], dict[str, VectorSet]]:
    """Vectors of both sides, as options where they are files.

    Args:
        sides: name of the argument -> path of a file, array or tensor.
        groups: of vectors in memory, as of `take_groups`.

    Returns:
        Options that name files, and the vectors in memory by the option that would name them.

    Raises:
        InputError: something else, or no vectors.
    """
    files, vectors = dict[str, str](), dict[str, VectorSet]()
    for (name, value), subjects in zip(sides.items(), groups, strict=True):
        option = f"{name.removesuffix('s')}_embeddings"
        if isinstance(value, str | Path):
            files[option] = str(value)
            if subjects is not None:
                raise InputError(f"groups in memory need {name} in memory: name a file of either")
        elif hasattr(value, "__array__"):
            column = None if subjects is None else np.asarray(subjects).astype(str)
            vectors[option] = replace(as_vectors(value, name, name), column=column)
        else:
            raise InputError(
                f"{name} must be vectors: an array or a tensor, (N, D) or (N, views, D), or the "
                f"path of a file of them; got {type(value).__name__}"
            )
    return files, vectors
