"""How the runs of a study are made: the command line of each, and what must be known before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from fedmia.config.audit import Audit
from fedmia.config.study import Cell, Study
from fedmia.storage.runfolder import RunFolder
from fedmia.study.child import command

# Command line of the process that makes a run: of the file of its settings, and its folder.
Start = Callable[[Path, Path], Sequence[str]]


@dataclass(frozen=True)
class RunLauncher:
    """How the runs are made.

    Attributes:
        start: makes the command line of the process of a run.
        is_resumable: whether a folder holds a run that can be continued.
    """

    start: Start
    is_resumable: Callable[[Path], bool]


def launcher_of(settings: Study, start: Start | None = None) -> RunLauncher:
    """How the runs of a study are made.

    Args:
        settings: of the study.
        start: makes the command line of a run; None for the usual one.

    Returns:
        What starts each, and whether a folder holds one that can be gone on with.
    """
    if not settings.encoders:
        return RunLauncher(start or simulate_command, is_resumable)
    trust = ["--trust-plugins"] if settings.trust_plugins else []

    def audit(config: Path, folder: Path) -> Sequence[str]:
        return command("fedmia.audit", "--config", config, "--out", folder, *trust)

    return RunLauncher(start or audit, lambda folder: True)  # it goes on with whatever lies there


def simulate_command(config: Path, folder: Path) -> Sequence[str]:
    """The command line of a simulation, begun or gone on with.

    Args:
        config: file of the run's settings.
        folder: of the run.

    Returns:
        The arguments.
    """
    if not is_resumable(folder):
        return command("fedmia.simulate", "--config", config, "--out", folder)
    # What lies there is of the study's own settings, whose plugins its user named.
    return command("fedmia.simulate", "--resume", folder, "--trust-plugins")


def is_resumable(folder: Path) -> bool:
    """Whether a folder holds a simulation that can be gone on with, or is finished."""
    run = RunFolder(folder)
    return run.begun() or run.finished() is not None


def add_digests(cells: Sequence[Cell]) -> list[Cell]:
    """The audits with the digests of their encoders and images, all of which are loaded once.

    Raises:
        InputError: an audit that would be refused.
    """
    from fedmia.evaluation.audits.images import AuditSplit
    from fedmia.evaluation.audits.resume import content
    from fedmia.evaluation.audits.runs import run_of
    from fedmia.evaluation.encoder import check_embeddings, device_of, images_for, load_encoder

    splits: dict[tuple[Path | None, int | None], AuditSplit] = {}
    digests: dict[str, str] = {}
    for audit in [cast(Audit, cell.first) for cell in cells if cell.nth == 0]:
        released = load_encoder(audit, device_of(audit))
        run = run_of(audit)
        source = None if run is None else run.path, audit.size or released.size
        if source not in splits:
            splits[source] = images_for(audit, released)
        check_embeddings(released, splits[source], audit.allow_random)
        digests[audit.encoder] = content(audit, released, splits[source])
    return [replace(cell, files=digests[cast(Audit, cell.first).encoder]) for cell in cells]
