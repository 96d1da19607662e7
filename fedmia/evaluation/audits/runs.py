"""A run of fedmia opened again for an audit: its settings, and its images in their roles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedmia.config.audit import Audit
from fedmia.config.tree import from_tree
from fedmia.data._pixels import square
from fedmia.data.images import IntArray
from fedmia.evaluation.audits.images import Dealt
from fedmia.options.errors import InputError, opt
from fedmia.options.seeding import rng
from fedmia.options.yamlfile import load
from fedmia.report.faults import gone
from fedmia.threat import Labels

if TYPE_CHECKING:
    from fedmia.federation.run import Prepared


def run_folder(encoder: str) -> Path | None:
    """Folder of `RUN` or `RUN@ROUND`, None for other encoders."""
    for spec in (encoder, encoder.rpartition("@")[0]):
        if spec and (Path(spec) / "config.yaml").is_file():
            return Path(spec)
    return None


def run_tree(encoder: str) -> dict[str, Any] | None:
    """The configuration of a fedmia run, None for other encoders."""
    folder = run_folder(encoder)
    return None if folder is None else load(folder / "config.yaml")


def dealt_again(folder: Path, otherwise: str) -> Prepared:
    """The run in `folder` as it was before its first round, less the images of the clients that it
    dropped.

    Args:
        otherwise: what to do where that cannot be.

    Raises:
        InputError: the run's data cannot be read again, or what runs need is not installed.
    """
    try:
        from fedmia.config.experiment import Experiment
        from fedmia.federation.run import prepare  # needs what a simulation needs: Flower
    except ImportError as error:
        raise InputError(
            f"the images of run '{folder}' cannot be dealt again without "
            f"{str(error.name).partition('.')[0]}: install it, or {otherwise}"
        ) from None
    prepared = prepare(from_tree(Experiment, load(folder / "config.yaml")))
    return replace(prepared, split=prepared.split.without(gone(folder / "report.json")))


def from_run(audit: Audit, folder: Path) -> Dealt:
    """The images that a fedmia run scored, known ones as there, from its own data source.

    Raises:
        InputError: the run's data cannot be read again, or what runs need is not installed.
    """
    prepared = dealt_again(folder, f"give {opt('members')} and {opt('nonmembers')}")
    data, split = prepared.data, prepared.split

    def take(indices: IntArray) -> Tensor:
        return torch.from_numpy(square(data.images[indices], audit.size, data.name))

    known = len(split.known_members) if audit.known is None else audit.known
    if not 2 <= known <= min(len(split.known_members), len(split.known_nonmembers)):
        raise InputError(
            f"{opt('known', known)}: the run has {len(split.known_members)} known members; give "
            f"{opt('members')} and {opt('nonmembers')} to choose others"
        )
    # The split's indices are sorted, and neighbours in a data source may be alike.
    known_members, known_others, members, others = (
        rng(audit.seed, "audit", role).permutation(getattr(split, role))
        for role in ("known_members", "known_nonmembers", "scored_members", "scored_nonmembers")
    )
    half = len(others) // 2 if audit.shadows and audit.shadow_data is None else len(others)
    spare = np.concatenate([others[half:], *split.placebo_parts, split.public])
    members, others = np.sort(members[: audit.limit]), np.sort(others[:half][: audit.limit])
    every = np.concatenate([known_members, known_others, members, others, spare])
    return Dealt(
        known_members=take(known_members[:known]),
        known_nonmembers=take(known_others[:known]),
        scored_members=take(members),
        scored_nonmembers=take(others),
        member_ids=members,
        nonmember_ids=others,
        member_labels=data.labels[members],
        nonmember_labels=data.labels[others],
        spare=take(spare),
        spared=len(spare),
        labels=Labels([(take(every), data.named()[every])]),
        names=(data.name, data.name),
        views=prepared.experiment.data.source().views,
        notes=("Members and non-members are those of the run itself.",),
    )
