"""The images that attacks were scored on, dealt again from the data source of a run or an audit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmia.config.audit import Audit
from fedmia.evaluation.audits.images import deal
from fedmia.evaluation.audits.runs import redeal_split, run_of, split_of_run
from fedmia.options.errors import InputError
from fedmia.storage.runfolder import RunFolder

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """The images that attacks were scored on.

    Attributes:
        members: uint8 (N, C, S, S) images that were trained on.
        nonmembers: uint8 (M, C, S, S) others.
        owners: int64 (N,) client that held each member; 0 in an audit, which knows of no clients.
        member_ids: int64 (N,) places in the data source, as in `scores.csv`.
        nonmember_ids: int64 (M,) likewise.
        member_labels: int64 (N,) classes, zeros where unlabelled.
        nonmember_labels: int64 (M,) likewise.
    """

    members: NDArray[np.uint8]
    nonmembers: NDArray[np.uint8]
    owners: NDArray[np.int64]
    member_ids: NDArray[np.int64]
    nonmember_ids: NDArray[np.int64]
    member_labels: NDArray[np.int64]
    nonmember_labels: NDArray[np.int64]

    def sort_as(self, scores: pd.DataFrame, run: str) -> ScoredImages:
        """The images in the order of scores.csv.

        Args:
            scores: a row an image, with the columns `image` and `truth`.
            run: its folder, for the error.

        Returns:
            The scored images.

        Raises:
            InputError: `scores` names images that were not dealt.
        """
        truth, sides = scores["truth"], dict[str, NDArray[np.int64]]()
        for side, ids in (("members", self.member_ids), ("nonmembers", self.nonmember_ids)):
            place = {image: at for at, image in enumerate(ids.tolist())}
            scored = scores.loc[truth == (side == "members"), "image"].tolist()
            if not place.keys() >= set(scored):
                raise InputError(
                    f"the data source no longer holds the images that '{run}' was scored on"
                )
            sides[side] = np.array([place[image] for image in scored], dtype=np.int64)
        return ScoredImages(**{
            field.name: getattr(self, field.name)[
                sides["nonmembers" if field.name.startswith("nonmember") else "members"]
            ]
            for field in fields(self)
        })  # fmt: skip


def of_run(files: RunFolder) -> ScoredImages:
    """The scored images of a run.

    Returns:
        The images in the order in which the run deals them.

    Raises:
        InputError: the data source cannot be read again, or holds other images by now.
    """
    plan = redeal_split(files, "read the data source itself")
    data, split = plan.data, plan.split
    inside, outside = split.scored_members, split.scored_nonmembers
    client_of = dict(zip(split.members.tolist(), split.owner.tolist(), strict=True))
    return ScoredImages(
        members=data.images[inside],
        nonmembers=data.images[outside],
        owners=np.array([client_of[image] for image in inside.tolist()], dtype=np.int64),
        member_ids=inside,
        nonmember_ids=outside,
        member_labels=data.labels[inside],
        nonmember_labels=data.labels[outside],
    )


def of_audit(files: RunFolder, audit: Audit) -> ScoredImages:
    """The scored images of an audit, at the size that its encoder got.

    Args:
        files: of the audit.

    Returns:
        The images in the order in which the audit deals them.

    Raises:
        InputError: the data source cannot be read again.
    """
    run = run_of(audit)
    if audit.members is None and run is not None:
        scored = split_of_run(audit, run)
    else:
        report: Any = files.read_report_or_none() or {}
        encoder_row = report.get("encoder", {})
        scored = deal(audit, audit.size or encoder_row.get("size"))
    return ScoredImages(
        members=scored.scored_members.numpy(),
        nonmembers=scored.scored_nonmembers.numpy(),
        owners=np.zeros(len(scored.member_ids), dtype=np.int64),
        member_ids=scored.member_ids,
        nonmember_ids=scored.nonmember_ids,
        member_labels=scored.member_labels,
        nonmember_labels=scored.nonmember_labels,
    )
