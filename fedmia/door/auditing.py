"""An audit from Python: options as of the command, and what the session hands over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def read_sides(sides: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, VectorSet]]:
    """Vectors of both sides, as options where they are files.

    Args:
        sides: name of the argument -> path of a file, array or tensor.

    Returns:
        Options that name files, and the vectors in memory by the option that would name them.

    Raises:
        InputError: something else, or no vectors.
    """
    files, vectors = dict[str, str](), dict[str, VectorSet]()
    for name, value in sides.items():
        option = f"{name.removesuffix('s')}_embeddings"
        if isinstance(value, str | Path):
            files[option] = str(value)
        elif hasattr(value, "__array__"):
            vectors[option] = as_vectors(value, name, name)
        else:
            raise InputError(
                f"{name} must be vectors: an array or a tensor, (N, D) or (N, views, D), or the "
                f"path of a file of them; got {type(value).__name__}"
            )
    return files, vectors
