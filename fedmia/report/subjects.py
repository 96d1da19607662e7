"""Leakage by subject, such as a patient, beside what subjects that are no members score."""

from __future__ import annotations

import numpy as np

from fedmia.records import Evaluation
from fedmia.records.client_rows import SUBJECT, ClientRow
from fedmia.records.fields import row_of
from fedmia.report.clients import declared_attack, leak_numbers
from fedmia.seeding import rng
from fedmia.statistics.auc import auc, auc_estimate
from fedmia.statistics.matching import DRAWS, NullDistribution

METHOD = (
    "; images of a subject are no independent draws: variances between subjects (Obuchowski 1997), "
    "rates in effective trials (Korn and Graubard 1998)"
)


def subject_rows(run: Evaluation) -> list[ClientRow]:
    """The report's `clients` where images belong to subjects: the highest lower end first.

    The interval is of this subject's images against non-member subjects. Its null: the AUC of one
    non-member subject at a time against the others.

    Args:
        run: the scores, with the subjects of the images.

    Returns:
        A row for each subject of the scored members.
    """
    attack = declared_attack(run)
    if attack is None or run.subjects is None or not len(attack.scores_nonmembers):
        return []
    scores, (mine, of) = attack.scores_nonmembers, run.subjects
    others = rng(run.seed, "subject-null").permutation(np.unique(of))[:DRAWS]
    null, rows = None, list[ClientRow]()
    if len(np.unique(of)) > 1:
        aucs = np.array([auc(scores[of == one], scores[of != one]) for one in others])
        null = NullDistribution(aucs, round(len(of) / len(np.unique(of))))
    each = np.unique(mine)
    for one in each.tolist():
        own = attack.scores_members[mine == one]
        estimate = auc_estimate(own, scores, subjects=(np.arange(len(own)), of))
        leak = estimate, float(len(of)), null
        row = row_of(
            ClientRow, None, whose=SUBJECT, id=one, name=run.subject_names[one],
            size=len(own), role="honest", n_members=len(own), attack=attack.name,
            null_n=null and null.posers,
            **leak_numbers(leak, len(each)),
        )  # fmt: skip
        rows.append(row)
    return sorted(rows, key=lambda row: -row.auc_ci[0] if row.auc_ci else 0.0)
