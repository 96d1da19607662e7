"""`fedmia.run_study`: settings, defences, encoders or attacks compared over several seeds."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmia.cli.commands import STUDY
from fedmia.door.arguments import Config, build_settings, listed
from fedmia.door.plugins import name_plugin
from fedmia.door.simulation import interrupts, own_threads
from fedmia.options import session
from fedmia.options.errors import InputError
from fedmia.study.result import StudyResult


def run_study(
    config: Config = None,
    *,
    over: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = None,
    out: str | Path,
    quiet: bool = False,
    trust_plugins: bool = False,
    **options: Any,
) -> StudyResult:
    """Make many runs, each in a process of its own, and compare them.

    The same as `fedmia study`: the same call goes on with what is not finished.

        study = fedmia.run_study("smoke", over={"partition.alpha": [0.1, 1]}, seeds=5, out="STUDY")
        study.table

    Args:
        config: preset, YAML file or nested mapping that every run starts from.
        over: path of an option -> its values, or several such mappings; a plugin is a name, a
            class, an instance with its options, or a mapping of `name` and options. Without it,
            one point is run.
        out: folder of the study.
        quiet: show no progress.
        trust_plugins: import plugins from outside that the folders of audited runs name.
        options: as of `fedmia.run_simulation`, and those of `fedmia study` (`seeds=5`,
            `jobs=2`, `baseline="similarity"`, `defenses=["dpsgd"]`, `encoders=["RUN@0", "A.pth"]`
            with the options of `fedmia.audit_encoder`).

    Returns:
        The study, as far as its runs could be done.

    Raises:
        InputError: bad input, in one line; no run is begun.
    """
    from fedmia.study.run import run_cells  # torch and flwr, which opening a study does not need

    if over is not None:
        grids = [over] if isinstance(over, Mapping) else over
        options["over"] = [name_values(one) for one in grids]
    baseline = options.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        options["baseline"] = name_plugin("attack", baseline)["name"]
    settings = build_settings(STUDY, config, options, trust_plugins)
    with interrupts("runs") as stop, session_for_children(), own_threads():
        study, _ = run_cells(settings, Path(out), stop, quiet)
    return study


def name_values(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """A grid whose plugins are names, or names with options.

    Args:
        grid: path of an option -> values, which may be classes or instances.

    Returns:
        The grid with plain values.

    Raises:
        InputError: an option without a list of values.
    """
    plain: dict[str, list[Any]] = {}
    kinds = STUDY.shape.plugins
    for path, values in grid.items():
        if not listed(values):
            raise InputError(f"over: {path} needs a list of values, got {values!r}")
        place = STUDY.short.get(path, path)  # `clients` is short for `federation.clients`
        kind = kinds.get(place.removesuffix(".name"))
        plain[place] = [v if kind is None else _plugin_value(kind, v) for v in values]
    return plain


def _plugin_value(kind: str, value: Any) -> Any:
    """A plugin as a value: its name, or a mapping where it has options of its own."""
    plugin = name_plugin(kind, value)
    return plugin if len(plugin) > 1 else plugin["name"]


@contextmanager
def session_for_children() -> Iterator[None]:
    """Let the processes of runs import what this session can, and have its classes."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", session.VARIABLE)}
    with tempfile.TemporaryDirectory(prefix="fedmia-session-") as folder:
        places = [str(Path(place or ".").resolve()) for place in sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(places)
        if session.classes():
            file = Path(folder) / "classes.pkl"
            session.write(file)
            os.environ[session.VARIABLE] = str(file)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
