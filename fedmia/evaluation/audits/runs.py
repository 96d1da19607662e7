"""A run of fedmia opened again for an audit: its settings, and its images in their roles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedmia.config.audit import Audit
from fedmia.config.choices import PluginChoice
from fedmia.config.experiment import Experiment
from fedmia.config.tree import from_tree, to_tree
from fedmia.data.decoding import resize_all
from fedmia.data.images import IntArray
from fedmia.evaluation.audits.images import AuditSplit
from fedmia.options.errors import InputError, opt
from fedmia.options.seeding import rng
from fedmia.storage.runfolder import RunFolder, Trust, outside_plugins
from fedmia.threat import Labels

if TYPE_CHECKING:
    from fedmia.federation.plan import Plan


@dataclass(frozen=True)
class DealtExperiment(Experiment):
    """The settings of a run that deal its images: no strategy, which needs Flower, and no defence,
    which may need Opacus."""

    strategy: PluginChoice = PluginChoice("fedavg")


def trust_setting(audit: Audit) -> Trust:
    """Which plugins from outside an audit may import for a run's folder.

    These are the ones that the audit's own settings name, or all.
    """
    return audit.trust_plugins or outside_plugins(to_tree(audit))


def run_of(audit: Audit) -> RunFolder | None:
    """The run whose model is audited, as `RUN` or `RUN@ROUND`, None for other encoders."""
    for folder in (audit.encoder, audit.encoder.rpartition("@")[0]):
        if folder and (run := RunFolder(Path(folder), trust_setting(audit))).config.is_file():
            return run
    return None


def redeal_split(run: RunFolder, otherwise: str) -> Plan:
    """Prepare the audited run again, without the images of clients that it dropped.

    Args:
        run: the folder of the run.
        otherwise: what to do where that cannot be.

    Returns:
        Images and roles of the run, and its settings but for strategy and defences.

    Raises:
        InputError: the run's data cannot be read again, or what runs need is not installed.
    """
    try:
        from fedmia.federation.plan import make_plan

        unread = ("strategy", "defense")
        tree = {name: value for name, value in run.tree().items() if name not in unread}
        plan = make_plan(from_tree(DealtExperiment, tree))
    except ImportError as error:
        raise InputError(
            f"the images of run '{run.path}' cannot be dealt again without "
            f"{str(error.name).partition('.')[0]}: install it, or {otherwise}"
        ) from None
    return replace(plan, split=plan.split.without_clients(run.dropped()))


def split_of_run(audit: Audit, run: RunFolder) -> AuditSplit:
    """The images that a run scored and knew, from the run's own data source.

    Args:
        run: the folder of the run.

    Returns:
        The images in their roles, as in the run.

    Raises:
        InputError: the run's data cannot be read again, or what runs need is not installed.
    """
    plan = redeal_split(run, f"give {opt('members')} and {opt('nonmembers')}")
    data, split = plan.data, plan.split

    def take(indices: IntArray) -> Tensor:
        return torch.from_numpy(resize_all(data.images[indices], audit.size, data.name))

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
    known_members, known_others = known_members[:known], known_others[:known]
    of_rounds = dict[str, Any]()
    if audit.of_rounds:  # as the run itself scored its rounds
        from fedmia.federation.schedule import Schedule

        holder = plan.experiment.holder
        known_members, known_others = np.sort(known_members), np.sort(known_others)
        owners = np.full(len(data.images), -1, dtype=np.int64)
        owners[split.members] = split.owner
        received = frozenset(Schedule(plan.experiment).received(holder))
        own = None if holder is None else take(split.parts[holder])
        of_rounds = {"owners": owners, "own": own, "received": received}
    return AuditSplit(
        known_members=take(known_members),
        known_nonmembers=take(known_others),
        scored_members=take(members),
        scored_nonmembers=take(others),
        member_ids=members,
        nonmember_ids=others,
        member_labels=data.labels[members],
        nonmember_labels=data.labels[others],
        spare=take(spare),
        spared=len(spare),
        labels=Labels([(take(every), data.class_labels()[every])]),
        names=(data.name, data.name),
        views=plan.experiment.data.source().views,
        notes=("Members and non-members are those of the run itself.",),
        **of_rounds,
    )
