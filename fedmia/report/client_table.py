"""Every client in one CSV, where a page shows only some."""

from __future__ import annotations

import csv
import io

from fedmia.report.rows import ClientRow, Report

HEAD = (
    "client", "role", "defence", "epsilon", "unit", "epsilon_at_least", "images", "members",
    "nonmembers_effective", "attack",
    "auc", "auc_low", "auc_high", "auc_low_simultaneous", "auc_high_simultaneous",
    "null_auc", "null_low", "null_high", "null_posers",
)  # fmt: skip


def clients_csv(report: Report) -> str:
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
    """
    rows, asked = report["clients"], report["dataset_inference"]
    classes = max((len(c["classes"] or ()) for c in rows), default=0)
    kinds = [f"{kind} {row['attack']}" for row in asked for kind in ("p_value", "p_value_holm")]
    told = [
        {c["client"]: (c["p_value"], c["p_value_holm"]) for c in row["clients"]} for row in asked
    ]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*HEAD, *kinds, *(f"class {k}" for k in range(classes))])
    for c in rows:
        values = [value for by in told for value in by.get(c["id"], (None, None))]
        held: list[object] = [*(c["classes"] or ())]
        table.writerow([*_columns(c), *values, *held, *[None] * (classes - len(held))])
    return text.getvalue()


def _columns(c: ClientRow) -> list[object]:
    """The values under HEAD."""
    nobody = (None, None)
    defence = c["defence"]
    spent = defence["epsilon"] if defence else None
    bound = spent.get("lower_bound") if spent else None
    who = [c["id"], c["role"], defence and defence["name"], spent and spent["value"]]
    who += [spent and spent["unit"], bound and bound["value"], c["size"]]
    ends = [*(c["auc_ci"] or nobody), *(c["auc_ci_simultaneous"] or nobody)]
    null = [c["null_auc"], *(c["null_ci"] or nobody), c["null_n"]]
    seen = [c["n_members"], c["n_nonmembers_effective"], c["attack"], c["auc"]]
    return [*who, *seen, *ends, *null]
