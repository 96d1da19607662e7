"""The CSV file of scores by image. Every number of a report is in table.csv (`fedmia.table`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from fedmia.records import RunScores


def text(head: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """CSV text of a head and lines; None is empty."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([head, *lines])
    return buffer.getvalue()


def scores_csv(run: RunScores) -> str:
    """CSV text with columns image, truth (1 member, 0 not), client, label, and one an attack.

    `client` is empty for non-members. Scores have 9 digits, which tell any two float32 apart.
    """
    nobody = [""] * len(run.nonmember_ids)
    lines: list[list[object]] = []
    for truth, ids, clients, labels, side in (
        (1, run.member_ids, run.member_client, run.member_labels, 0),
        (0, run.nonmember_ids, nobody, run.nonmember_labels, 1),
    ):
        scores = (a.sides[side] for a in run.attacks)
        for image, client, label, *own in zip(ids, clients, labels, *scores, strict=True):
            lines.append([image, truth, client, label, *(f"{s:.9g}" for s in own)])
    return text(["image", "truth", "client", "label", *(a.name for a in run.attacks)], lines)
