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
    """CSV text with columns image, truth (1 member, 0 not), client, label, and one an attack; after
    client the subject's name, where images belong to subjects.

    `client` is empty for non-members. Scores have 9 digits, which tell any two float32 apart.
    """
    nobody = [""] * len(run.nonmember_ids)
    lines: list[list[object]] = []
    names = () if run.subjects is None else run.subjects.names
    for truth, ids, clients, labels, side in (
        (1, run.member_ids, run.member_client, run.member_labels, 0),
        (0, run.nonmember_ids, nobody, run.nonmember_labels, 1),
    ):
        scores, columns = [a.sides[side] for a in run.attacks], [clients, labels]
        if run.subjects is not None:
            own = run.subjects.members if truth else run.subjects.nonmembers
            columns.insert(1, [names[one] for one in own])
        for image, *about in zip(ids, *columns, *scores, strict=True):
            facts, values = about[: len(columns)], about[len(columns) :]
            lines.append([image, truth, *facts, *(f"{s:.9g}" for s in values)])
    head = ["image", "truth", "client", *["subject"] * bool(names), "label"]
    return text([*head, *(a.name for a in run.attacks)], lines)
