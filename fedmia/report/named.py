"""Whose image was it: how often an attack names the client that holds a scored member."""

from __future__ import annotations

import numpy as np

from fedmia.report.intervals import wilson
from fedmia.report.per_client import per_client
from fedmia.report.rows import NamedCounts, NamedRow
from fedmia.results import IntArray, RunScores


def named_rows(run: RunScores) -> list[NamedRow]:
    """The report's `named_clients`: one row for each attack that names clients.

    `chance` is what the client with most scored members would be right with, named for each.
    `per_client` is the test for one client (see `per_client`), null where the attack has no
    scores by client. `placebo` holds the same counts and the same test where the clients never
    saw the images: there nothing but chance can be right.
    """
    rows: list[NamedRow] = []
    for attack in run.attacks:
        if attack.named_members is None or not len(attack.named_members):
            continue
        counts = np.unique(run.member_client, return_counts=True)[1]
        row: NamedRow = {
            "attack": attack.name,
            **_counts(attack.named_members, run.member_client),
            "chance": float(counts.max() / counts.sum()),
            "per_client": per_client(run, attack),
            "placebo": None,
        }
        for control in run.controls.get("placebo", ()):
            if control.name == attack.name and control.named_members is not None:
                row["placebo"] = {
                    **_counts(control.named_members, run.member_client),
                    "per_client": per_client(run, control, "placebo"),
                }
        rows.append(row)
    return rows


def _counts(named: IntArray, truth: IntArray) -> NamedCounts:
    correct, n = int(np.sum(named == truth)), len(truth)
    return {"correct": correct, "n": n, "accuracy": correct / n, "ci": wilson(correct, n)}
