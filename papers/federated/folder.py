"""A finished run opened again: its data and roles dealt anew from its settings and its seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from fedmia.config.compatibility import check_gpu
from fedmia.config.experiment import Experiment
from fedmia.evaluation.federated.snapshots import Evaluation
from fedmia.federation.run import FederationResult, make_client_context, prepare
from fedmia.options.errors import InputError, style_of_file
from fedmia.records import Curves
from fedmia.records.rows import RoundRow
from fedmia.runs import Run
from fedmia.storage.manifest import REPORT
from fedmia.storage.runfolder import RunFolder
from fedmia.storage.snapshot import MemoryStore, SnapshotStore


@dataclass(frozen=True)
class ReopenedRun:
    """A run whose snapshots can be attacked again.

    Attributes:
        folder: of the run.
        experiment: its settings.
        evaluation: what its attacker holds of each snapshot, and the images to score.
        rounds: evaluated rounds of which a snapshot was kept, in order.
        scored_at: the round that passive attacks score: the last before a crafted update.
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
def reopen_run(run: Run, device: str) -> Iterator[ReopenedRun]:
    """A finished run, while the context is open.

    Args:
        run: a finished run.
        device: where its models are placed.

    Yields:
        The run with its data and roles, split again from its settings.

    Raises:
        InputError: its data cannot be read again.
    """
    history, experiment = run.records["rounds"], replace(settings(run), device=device)
    files = RunFolder(run.folder)
    check_gpu(device)
    with TemporaryDirectory(prefix="fedmia-") as work:
        with style_of_file(files.config):
            prepared = prepare(experiment)
            client_context = make_client_context(prepared, Path(work), Event())
        store = SnapshotStore(files.snapshots)
        done = FederationResult(
            prepared, client_context, MemoryStore(), store, [], True, gone=files.dropped()
        )
        stored_rounds = [r for r in done.schedule.evaluated() if r in store.rounds("main")]
        if not stored_rounds:
            raise InputError(f"run '{run.folder}' holds no snapshots in snapshots/main")
        attacked = {r["round"] for r in history if r["under_attack"]}
        clean = [r for r in stored_rounds if r not in attacked]
        yield ReopenedRun(
            folder=run.folder,
            experiment=experiment,
            evaluation=Evaluation(done, {n: dict(o) for n, o in experiment.attack.items()}),
            rounds=tuple(stored_rounds),
            scored_at=(clean or stored_rounds)[-1],
            history=history,
            curves=run.curves,
        )


def settings(run: Run) -> Experiment:
    """The settings that a simulation was started with.

    Raises:
        InputError: it is an audit's folder.
    """
    if not isinstance(run.settings, Experiment):
        raise InputError(f"folder '{run.folder}' holds an audit, no finished run")
    return run.settings


def open_finished_run(folder: Path, trust_plugins: bool) -> Run:
    """The finished run in `folder`.

    Args:
        folder: of the run.
        trust_plugins: whether plugins named by the folder are imported.

    Returns:
        The run.

    Raises:
        InputError: no run, or one that was not finished.
    """
    files = RunFolder(folder, trust_plugins)
    if "rounds" not in files.report():
        raise InputError(f"{REPORT} of run '{folder}' is no report of a run")
    return Run(files)
