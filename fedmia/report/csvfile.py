"""Tables to read elsewhere: the scores of every image (`scores.csv`), a sweep (`sweep.csv`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from fedmia.report.rows import SweepRow
from fedmia.results import RunScores


def scores_csv(run: RunScores) -> str:
    """CSV text with columns image, truth (1 member, 0 not), client, label, and one an attack.

    Attacks by batch have no score of an image and are left out. `client` is empty for
    non-members. Scores have 9 digits, which tell any two float32 apart.
    """
    attacks = [a for a in run.attacks if a.unit == "image"]
    n, m = len(run.member_ids), len(run.nonmember_ids)
    members = np.array([a.scores_members for a in attacks]).reshape(len(attacks), n)
    others = np.array([a.scores_nonmembers for a in attacks]).reshape(len(attacks), m)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["image", "truth", "client", "label", *(a.name for a in attacks)])
    for i, image in enumerate(run.member_ids):
        start = [int(image), 1, int(run.member_client[i]), int(run.member_labels[i])]
        table.writerow([*start, *(f"{s:.9g}" for s in members[:, i])])
    for i, image in enumerate(run.nonmember_ids):
        start_other = [int(image), 0, "", int(run.nonmember_labels[i])]
        table.writerow([*start_other, *(f"{s:.9g}" for s in others[:, i])])
    return text.getvalue()


def sweep_csv(rows: Sequence[SweepRow]) -> str:
    """CSV text of `report["sweep"]`: one line an attack and value, empty where it could not run."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    head = ["attack", "sweep", "value", "known", "n_members", "n_nonmembers", "queries", "auc"]
    head += ["auc_low", "auc_high", "auc_low_simultaneous", "auc_high_simultaneous"]
    table.writerow([*head, "accuracy", "tpr_at_1_percent_fpr", "not_run"])
    for row in rows:
        place = [row["attack"], row["sweep"], row["value"], row["known"]]
        if row["not_run"] is not None:
            table.writerow([*place, *[None] * 10, row["not_run"]])
            continue
        counts = [row["n_members"], row["n_nonmembers"], row["queries"]]
        ends = [*(row["auc_ci"] or (None, None)), *(row["auc_ci_simultaneous"] or (None, None))]
        rates = [row["accuracy"], row["tpr_at_fpr"]["0.01"]]
        table.writerow([*place, *counts, row["auc"], *ends, *rates, None])
    return text.getvalue()
