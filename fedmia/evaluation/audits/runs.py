"""A run of fedmia opened again for an audit: its images in their roles, by its recording's cast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedmia.data.cast import Cast
from fedmia.data.classes import Labels
from fedmia.data.decoding import resize_all
from fedmia.data.encoded import EncodedSet
from fedmia.data.images import ImageSet
from fedmia.evaluation.audits.images import side_by_side
from fedmia.partitions.subjects import cut_whole, keep_together
from fedmia.recording.cast import read_cast
from fedmia.records.note import Note
from fedmia.seeding import rng
from fedmia.settings.commands.audit import Audit
from fedmia.settings.commands.data import Data
from fedmia.settings.errors import InputError, opt
from fedmia.settings.tree import from_tree, to_tree
from fedmia.storage.runfolder import RunFolder, Trust, outside_plugins


def trust_setting(audit: Audit) -> Trust:
    """Which plugins from outside an audit may import for a run's folder.

    These are the ones that the audit's own settings name, or all.
    """
    return audit.trust_plugins or outside_plugins(to_tree(audit))


def run_of(audit: Audit) -> RunFolder | None:
    """The run whose model is audited, as `RUN` or `RUN@ROUND`, None for other encoders."""
    for folder in (audit.encoder.name, audit.encoder.name.rpartition("@")[0]):
        if folder and (run := RunFolder(Path(folder), trust_setting(audit))).config.is_file():
            return run
    return None


def cast_of(run: RunFolder, otherwise: str) -> Cast:
    """The images of a run in their roles, without those of clients that it dropped.

    Args:
        run: the folder of the run.
        otherwise: what to do where its recording has no cast.

    Returns:
        The cast of its recording, with the images from its data source.

    Raises:
        InputError: there is no cast, or the data source cannot be read or holds other images.
        UntrustedPluginError: the data source is a plugin from outside that is not trusted.
    """
    tree = run.tree("data")
    data = from_tree(Data, tree["data"])

    def load() -> ImageSet | EncodedSet:
        request = data.request(tree["seed"])
        if (encoded := data.source().encoded(request)) is None:
            return data.source().load(request)
        return encoded.drop_unreadable() if data.skip_unreadable else encoded

    cast = read_cast(run.recording, load, run.path, otherwise)
    return replace(cast, views=data.source().views).without_clients(run.dropped())


def split_of_run(audit: Audit, run: RunFolder) -> Cast:
    """The images that a run scored and knew, from the run's own data source.

    Args:
        run: the folder of the run.

    Returns:
        The images in their roles, as in the run.

    Raises:
        InputError: as `cast_of`, or the run knows fewer images than are asked for.
    """
    cast = cast_of(run, f"give {opt('members')} and {opt('nonmembers')}")
    data, most = cast.data, len(cast.ids("known_members"))
    known = most if audit.split.known is None else audit.split.known
    if not 2 <= known <= min(most, len(cast.ids("known_nonmembers"))):
        raise InputError(
            f"{opt('split.known', known)}: the run has {most} known members; give "
            f"{opt('members')} and {opt('nonmembers')} to choose others"
        )
    # The ids are sorted, and neighbours in a data source may be alike.
    known_members, known_others, members, others = (
        rng(audit.seed, "audit", role).permutation(cast.ids(role))
        for role in ("known_members", "known_nonmembers", "scored_members", "scored_nonmembers")
    )
    half = len(others) // 2 if audit.shadow.count and audit.shadow.data is None else len(others)
    if cast.subjects is None:
        others, left = np.split(others, [half])
    else:
        of = cast.subjects[1]
        others = keep_together(others, of, rng(audit.seed, "audit subjects"))
        others, left = cut_whole(others, of, [half, len(others) - half], [2, 2])
    spare = np.concatenate([left, *cast.placebo_parts, cast.ids("public")])
    members, others = (np.sort(side[: audit.split.limit]) for side in (members, others))
    known_members, known_others = known_members[:known], known_others[:known]
    roles = ["known_members", "scored_members", "known_nonmembers", "scored_nonmembers", "spare"]
    own = list(cast.parts[cast.honest :][: audit.of_rounds])
    if audit.of_rounds:  # as the run itself scored its rounds
        known_members, known_others = np.sort(known_members), np.sort(known_others)
    ids = [known_members, members, known_others, others, spare, *own]
    at = np.concatenate(ids)
    images = replace(data.take(at), images=resize_all(data.images[at], audit.data.size, data.name))
    those = len(at) - sum(map(len, own))  # all but the attacker's own
    return Cast(
        (images, images),
        side_by_side(ids, *roles, *["own"] * len(own)),
        where=(at, at),
        owners=cast.owners,
        spared=len(spare),
        labels=Labels([(images.digests()[:those], images.class_labels()[:those])]),
        views=cast.views,
        received=cast.received,
        subjects=cast.subjects,
        subject_names=cast.subject_names,
        notes=(Note("images-of-run"),),
    )
