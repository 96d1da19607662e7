"""The scores of every image as a table: `scores.csv`."""

from __future__ import annotations

import csv
import io

import numpy as np

from fedmia.report.scores import RunScores


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
