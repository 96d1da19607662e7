"""A finished run opened again: its data and roles dealt anew from its settings and its seed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from fedmia.config.compatibility import gpu
from fedmia.config.experiment import Experiment
from fedmia.config.tree import from_tree
from fedmia.evaluation.federated.snapshots import Evaluation
from fedmia.federation.run import Finished, make_site, prepare
from fedmia.options.errors import InputError, told_of
from fedmia.options.yamlfile import load
from fedmia.records import Curves
from fedmia.report.curves import FILE, from_npz
from fedmia.report.faults import gone
from fedmia.report.rows import RoundRow
from fedmia.storage.outfolder import CONFIG
from fedmia.storage.snapshot import MemoryStore, SnapshotStore


@dataclass(frozen=True)
class Opened:
    """A run whose snapshots can be attacked again.

    Attributes:
        evaluation: what its attacker holds of each snapshot, and the images to score.
        rounds: evaluated rounds of which a snapshot was kept, in order.
        scored_at: the one that passive attacks are scored on: the last before a crafted update.
        history: the report's rounds, in which those under attack are named.
        curves: losses by attacked round, None where no active attack was scored.
    """

    folder: Path
    experiment: Experiment
    evaluation: Evaluation
    rounds: tuple[int, ...]
    scored_at: int
    history: Sequence[RoundRow]
    curves: Curves | None


@contextmanager
def opened(folder: Path, device: str) -> Iterator[Opened]:
    """The run in `folder`, while the context is open.

    Raises:
        InputError: no finished run, or its data cannot be read again.
    """
    report, experiment = finished(folder), replace(settings(folder), device=device)
    gpu(device)
    with TemporaryDirectory(prefix="fedmia-") as work:
        with told_of(folder / CONFIG):
            prepared = prepare(experiment)
            site = make_site(prepared, Path(work), Event())
        store = SnapshotStore(folder / "snapshots")
        left = gone(folder / "report.json")
        run = Finished(prepared, site, MemoryStore(), store, [], True, gone=left)
        kept = [r for r in run.schedule.evaluated() if r in store.rounds("main")]
        if not kept:
            raise InputError(f"run '{folder}' holds no snapshots in snapshots/main")
        attacked = {r["round"] for r in report if r["under_attack"]}
        clean = [r for r in kept if r not in attacked]
        yield Opened(
            folder=folder,
            experiment=experiment,
            evaluation=Evaluation(run, {n: dict(o) for n, o in experiment.attack.items()}),
            rounds=tuple(kept),
            scored_at=(clean or kept)[-1],
            history=report,
            curves=curves(folder),
        )


def settings(folder: Path) -> Experiment:
    """The settings that the run was started with."""
    with told_of(folder / CONFIG):
        return from_tree(Experiment, load(folder / CONFIG))


def curves(folder: Path) -> Curves | None:
    """The run's losses by attacked round, None where it kept none."""
    return from_npz(folder / FILE) if (folder / FILE).is_file() else None


def finished(folder: Path) -> Sequence[RoundRow]:
    """The rounds that the report of the run in `folder` tells of.

    Raises:
        InputError: no run, or one that was not finished.
    """
    for name in (CONFIG, "report.json"):
        if not (folder / name).is_file():
            raise InputError(f"folder '{folder}' holds no finished run: no {name} in it")
    try:
        found: Sequence[RoundRow] = json.loads((folder / "report.json").read_text("utf-8"))[
            "rounds"
        ]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"report.json of run '{folder}' is no report of a run") from None
    return found
