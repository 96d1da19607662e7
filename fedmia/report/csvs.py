"""The CSV files beside a report: scores by image, and clients where a page shows only some.

Every number of a report by itself is in table.csv (`fedmia.table`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedmia.records import RunScores
from fedmia.records.client_rows import ClientRow, InferenceRow

# Head of a column -> where its value lies in a row.
AUC = {
    "auc": "auc", "auc_low": "auc_ci/0", "auc_high": "auc_ci/1",
    "auc_low_simultaneous": "auc_ci_simultaneous/0",
    "auc_high_simultaneous": "auc_ci_simultaneous/1",
}  # fmt: skip
CLIENT = {
    "client": "id", "role": "role", "defence": "defence/name", "epsilon": "defence/epsilon/value",
    "unit": "defence/epsilon/unit", "epsilon_at_least": "defence/epsilon/lower_bound/value",
    "images": "size", "members": "n_members", "nonmembers_effective": "n_nonmembers_effective",
    "attack": "attack", **AUC, "null_auc": "null_auc", "null_low": "null_ci/0",
    "null_high": "null_ci/1", "null_posers": "null_n",
}  # fmt: skip


def text(head: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """CSV text of a head and lines; None is empty."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([head, *lines])
    return buffer.getvalue()


def value_at_path(row: Any, path: str) -> Any:
    """What lies at the end of a path, keys and places joined by `/`; None where it breaks off.

    Args:
        row: nested mappings and lists.
        path: as `auc_ci/0`.

    Returns:
        The value at the end of the path.
    """
    for step in path.split("/"):
        if row is not None:
            row = row.get(step) if isinstance(row, Mapping) else row[int(step)]
    return row


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


def clients_csv(rows: Iterable[ClientRow], inferences: Sequence[InferenceRow], classes: int) -> str:
    """CSV text, one line a client, empty where a value is not known.

    client, role, defence, epsilon: which one, and the epsilon it spent, for one `unit` (further
    statements, of another unit or delta: in report.json). epsilon_at_least: what canaries show of
    it from below, at 95 %. images: that it holds.
    members: of them scored, of classes that a scored non-member has. nonmembers_effective: Kish's
    number of the non-members weighted to its classes. attack: that clients are compared by, with
    its AUC and the ends of its 95 % interval, by itself and simultaneous for all clients. null: of
    non-members who pose as its members: mean AUC, 2.5th and 97.5th percentile, posers a draw. Then
    for each attack on data sets `p_value ATTACK` and, corrected for all clients, `p_value_holm
    ATTACK`; and `class N`: images of each class that it holds, where that is known.

    Args:
        rows: of all clients.
        inferences: of all clients, by attack.
        classes: most classes that a client counts.

    Returns:
        The file's text.
    """
    tests = {
        f"{kind} {row['attack']}": {c["client"]: c[kind] for c in row["clients"]}
        for row in inferences
        for kind in ("p_value", "p_value_holm")
    }

    def line(row: ClientRow) -> list[object]:
        class_counts = [*(row["classes"] or ())]
        values = [value_at_path(row, path) for path in CLIENT.values()]
        values += [by.get(row["id"]) for by in tests.values()]
        return [*values, *class_counts, *[None] * (classes - len(class_counts))]

    return text([*CLIENT, *tests, *(f"class {k}" for k in range(classes))], map(line, rows))
