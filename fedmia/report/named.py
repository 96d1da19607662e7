"""Whose image was it: how often an attack names the client that holds a scored member."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmia.report.intervals import wilson
from fedmia.report.scores import IntArray, RunScores


def named_rows(run: RunScores) -> list[dict[str, Any]]:
    """The report's `named_clients`: one row for each attack that names clients.

    `chance` is what the client with most scored members would be right with, named for each.
    `placebo` holds the same counts where the clients never saw the images: there nothing but
    chance can be right.
    """
    rows = []
    for attack in run.attacks:
        if attack.named_members is None or not len(attack.named_members):
            continue
        counts = np.unique(run.member_client, return_counts=True)[1]
        placebo = next(
            (a.named_members for a in run.controls.get("placebo", ()) if a.name == attack.name),
            None,
        )
        rows.append(
            {
                "attack": attack.name,
                **_counts(attack.named_members, run.member_client),
                "chance": float(counts.max() / counts.sum()),
                "placebo": None if placebo is None else _counts(placebo, run.member_client),
            }
        )
    return rows


def _counts(named: IntArray, truth: IntArray) -> dict[str, Any]:
    correct, n = int(np.sum(named == truth)), len(truth)
    return {"correct": correct, "n": n, "accuracy": correct / n, "ci": wilson(correct, n)}
