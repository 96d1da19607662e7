"""The CSV files of scores by image, and of the list of exposed members.

Every number of a report is in table.csv (`fedmia.table`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np

from fedmia.records import Evaluation
from fedmia.records.exposed_rows import ExposedRow
from fedmia.records.fields import PNG, fields_of


def text(head: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """CSV text of a head and lines; None is empty."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([head, *lines])
    return buffer.getvalue()


def exposed_csv(rows: Sequence[ExposedRow]) -> str:
    """CSV text of the list of exposed members: the fields of its rows without the pictures, and
    without those that no row has; attacks with `;` between them."""
    names = [
        name
        for name, field in fields_of(ExposedRow).items()
        if field.unit != PNG and any(getattr(row, name) is not None for row in rows)
    ]

    def cell(value: object) -> object:
        return ";".join(value) if isinstance(value, list) else value

    return text(names, ([cell(getattr(row, name)) for name in names] for row in rows))


def scores_csv(run: Evaluation) -> str:
    """CSV text with columns image, truth (1 member, 0 not), client, label, and one an attack; after
    client the subject's name, where images belong to subjects.

    `client` is empty for non-members. Scores have 9 digits, which tell any two float32 apart.
    """
    nobody = [""] * len(run.nonmember_ids)
    lines: list[tuple[object, ...]] = []
    of, names = run.subjects, np.array(run.subject_names)
    subjects = [[], []] if of is None else [[names[numbers]] for numbers in of]
    for truth, ids, clients, labels, side in (
        (1, run.member_ids, run.member_client, run.member_labels, 0),
        (0, run.nonmember_ids, nobody, run.nonmember_labels, 1),
    ):
        facts = ids, [truth] * len(ids), clients, *subjects[side], labels
        scores = ([f"{s:.9g}" for s in a.sides[side]] for a in run.attacks)
        lines += zip(*facts, *scores, strict=True)
    head = ["image", "truth", "client", *["subject"] * (of is not None), "label"]
    return text([*head, *(a.name for a in run.attacks)], lines)
