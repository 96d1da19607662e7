"""The runs of a study: how many at once, the command line of each, the digests of audits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from fedmia.runtime.cores import count_cores
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.study import Cell, Study
from fedmia.study.scheduler import command, side_by_side, simulate_command

# Command line of the process that makes a run: of the file of its settings, and its folder.
Start = Callable[[Path, Path], Sequence[str]]


def count_at_once(settings: Study) -> int:
    """How many runs are done at once."""
    devices = (cell.first.machine.device for cell in settings.points)
    threads = max(cell.threads or count_cores() for cell in settings.points)
    return side_by_side(settings.jobs, devices, threads)


def start_of(settings: Study) -> Start:
    """What makes the command line of each run of a study, begun or gone on with."""
    trust = ["--trust-plugins"] if settings.trust_plugins else []

    def audit(config: Path, folder: Path) -> Sequence[str]:
        return command("fedmia.audit", "--config", config, "--out", folder, *trust)

    return audit if settings.encoders else simulate_command


def add_digests(cells: Sequence[Cell]) -> list[Cell]:
    """The audits with the digests of their encoders and images, all of which are loaded once.

    Raises:
        InputError: an audit that would be refused.
    """
    from fedmia.data.cast import Cast
    from fedmia.evaluation.audits.prepare import (
        check_embeddings,
        device_of,
        images_for,
        load_encoder,
    )
    from fedmia.evaluation.audits.resume import audit_digest
    from fedmia.evaluation.audits.runs import run_of

    splits, digests = dict[Any, Cast](), list[str]()
    for audit in [cast(Audit, cell.first) for cell in cells if cell.nth == 0]:
        released = load_encoder(audit, device_of(audit)).encoder
        run = run_of(audit)
        source = (
            None if run is None else run.path,
            audit.data.size or released.size,
            audit.of_rounds,
        )
        if source not in splits:
            splits[source] = images_for(audit, released)
        check_embeddings(released, splits[source], audit.encoder.allow_random)
        digests.append(audit_digest(audit, released, splits[source]))
    every = itertools.cycle(digests)  # all encoders at the first seed, then all at the second
    return [replace(cell, files=files) for cell, files in zip(cells, every, strict=False)]
