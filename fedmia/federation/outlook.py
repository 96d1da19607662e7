"""What a run is about to do, said before its first round."""

from __future__ import annotations

import statistics
from collections.abc import Collection

from fedmia.federation.plan import Plan, subject_notes
from fedmia.federation.schedule import Schedule
from fedmia.partitions.sizes import MOST_MEMBERS, MOST_SCORED
from fedmia.report.words.notes import in_words, sentences
from fedmia.settings.errors import opt
from fedmia.ssl.base import State

LITTLE = 10_000_000  # bytes of disk of which nothing is said


def describe_start(plan: Plan) -> list[str]:
    """Images in use, clients, cuts and rounds of a run.

    Args:
        plan: settings, images and their roles.

    Returns:
        One line each; none where the images are elsewhere.
    """
    experiment, split, counts = plan.experiment, plan.cast, plan.cast.counts()
    if not split.distinct:
        return []
    counts["nonmembers"] = counts["known_nonmembers"] + counts["scored_nonmembers"]
    counts["test"] = counts["test_fit"] + counts["test_eval"]
    roles = ("members", "nonmembers", "test", "attackers", "placebo", "public")
    listed = ", ".join(f"{counts[role]:,} {role}" for role in roles if counts[role])
    limit = (
        f"; by default at most {MOST_MEMBERS:,} members, of which {MOST_SCORED:,} are scored: "
        f"{opt('split.members')} and {opt('split.scored')} take more"
    ) * (experiment.split.members is None and counts["members"] >= MOST_SCORED)
    sizes = sorted(len(part) for part in split.parts[: split.honest])
    lines = [
        f"{len(split.used):,} of {split.distinct:,} images of {split.data.name} used: "
        f"{listed}{limit}",
        f"{len(sizes)} clients train on {sizes[0]} (least), {statistics.median(sizes):g} (median), "
        f"{sizes[-1]} (most) images each"
        if len(sizes) > 1
        else f"1 client trains on {sizes[0]} images",
    ]
    if split.subjects is not None:
        lines += sentences(subject_notes(split))
    spec, batch = experiment.ssl.plugin("ssl"), experiment.train.batch_size
    if noted := [size for size in sizes if spec.notes(size)]:
        lines.append(f"{len(noted)} of {len(sizes)} clients: {in_words(spec.notes(noted[0])[0])}")
    if few := [size for size in sizes if size < batch / 2]:
        lines.append(
            f"WARNING: {len(few)} of {len(sizes)} clients have fewer images than half a batch of "
            f"{batch} and hardly learn: more {opt('split.members')}, fewer "
            f"{opt('federation.clients')} or a smaller {opt('train.batch_size')} help"
        )
    if experiment.pretrain.mode == "pooled":
        lines.append(
            f"WARNING: the server first trains {experiment.pretrain.epochs} epochs on all clients' "
            "private images, as no real server would"
        )
    schedule = Schedule(experiment)
    firsts = schedule.branches(bool(split.placebo_parts)).items()
    planned = [f"{schedule.last - first} {name}" for name, first in firsts]
    return [*lines, f"rounds: {' + '.join(planned)}"]


def describe_disk(schedule: Schedule, state: State, branches: Collection[str]) -> list[str]:
    """What the models and updates that a run keeps take on the disk.

    Args:
        schedule: which rounds are kept.
        state: the first model, weights by name.
        branches: of the run.

    Returns:
        One line; none below `LITTLE`.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    before = {r - 1 for r in schedule.changes_kept()}
    models = len({*schedule.evaluated(), *before}) * len(branches)
    senders = len(branches) * schedule.experiment.federation.clients
    updates = len(schedule.updates_kept()) * senders
    beside = f" and {updates:,} updates of clients" if updates else ""
    total = (models + updates) * size
    line = f"at most {models} models{beside} are kept: {total / 1e6:,.0f} MB of disk"
    return [line] if total >= LITTLE else []
