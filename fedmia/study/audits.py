"""Studies of audits: several encoders, or one with several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import torch

from fedmia.cli.command import Invocation
from fedmia.config.audit import Audit
from fedmia.config.series import Series
from fedmia.config.sweep import Cell, RunBatch
from fedmia.config.tree import to_tree
from fedmia.evaluation.audits.images import AuditSplit
from fedmia.evaluation.audits.resume import content
from fedmia.evaluation.audits.runs import run_of
from fedmia.evaluation.encoder import check_embeddings, device_of, images_for, load_encoder
from fedmia.options.errors import InputError, opt
from fedmia.runtime.cores import count_cores
from fedmia.study.child import command
from fedmia.study.engine import RunLauncher, Start
from fedmia.study.run import run_study
from fedmia.study.views.encoders import EncodersView


def encoders(invocation: Invocation, stop: Event, start: Start | None = None) -> int:
    """`python -m fedmia.audit` of several encoders, or with several seeds.

    Args:
        stop: set when the user interrupts.
        start: makes the command line of an audit; None for the usual one.

    Returns:
        The exit code.

    Raises:
        InputError: an encoder or images that an audit refuses, before any is begun; no folder, or
            one of something else.
    """
    series: Series = invocation.settings
    if invocation.out is None:
        raise InputError(f"{opt('out', 'FOLDER')} is missing: the audits are kept there")
    torch.set_num_threads(series.threads or count_cores())
    runs = RunBatch(add_digests(series.cells), series.jobs)
    start = start or partial(audit_command, trust_plugins=series.trust_plugins)
    work = RunLauncher(start, lambda folder: True)  # an audit goes on with whatever lies there
    return run_study(invocation, stop, runs, to_tree(series), work, EncodersView())


def audit_command(config: Path, folder: Path, trust_plugins: bool = False) -> Sequence[str]:
    """The command line of an audit."""
    trust = ["--trust-plugins"] if trust_plugins else []
    return command("fedmia.audit", "--config", config, "--out", folder, *trust)


def add_digests(cells: Sequence[Cell[Audit]]) -> list[Cell[Audit]]:
    """The audits with the digests of their encoders and images, all of which are loaded once.

    Raises:
        InputError: an audit that would be refused.
    """
    splits: dict[tuple[Path | None, int | None], AuditSplit] = {}
    digests: dict[str, str] = {}
    for audit in [cell.first for cell in cells if cell.nth == 0]:
        released = load_encoder(audit, device_of(audit))
        run = run_of(audit)
        source = None if run is None else run.path, audit.size or released.size
        if source not in splits:
            splits[source] = images_for(audit, released)
        check_embeddings(released, splits[source], audit.allow_random)
        digests[audit.encoder] = content(audit, released, splits[source])
    return [replace(cell, files=digests[cell.first.encoder]) for cell in cells]
