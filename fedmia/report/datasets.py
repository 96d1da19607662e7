"""Was this client's data set trained on? P-values by client, and their control."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedmia.records import DatasetInferenceResults, Evaluation
from fedmia.records.client_rows import (
    CLIENT,
    SUBJECT,
    InferenceRow,
    PosersRow,
)
from fedmia.records.fields import row_of
from fedmia.report.judgement import detected, is_clean
from fedmia.statistics.pvalues import VOID, count_alarms, exceeds_false_alarms, holm

LEVELS = ("0.01", "0.05")


def inference_row(
    run: DatasetInferenceResults,
    family: int,
    scores: Evaluation | None = None,
    may_differ: bool = False,
) -> InferenceRow:
    """One entry of the report's `dataset_inference`.

    Args:
        run: the answers.
        family: number of tests for a leak, this attack one of them.
        scores: whose subjects' sets these are; None, or without any: clients'.
        may_differ: as of the row.

    Returns:
        The row of `report.json`.
    """
    subjects = None if scores is None else scores.subjects
    by_subject = scores is not None and scores.by_subject
    names = scores.subject_names if scores and by_subject else ()
    whose = SUBJECT if by_subject else CLIENT
    corrected = holm([c.p_value for c in run.clients])
    clients = [
        replace(c, whose=whose, name=names[c.client] if names else None, p_value_holm=adjusted)
        for c, adjusted in zip(run.clients, corrected, strict=True)
    ]
    if by_subject:  # the riskiest first
        clients.sort(key=lambda c: c.p_value or 0.0)
    posers = [*run.posers]
    together = run.untrained_together
    void = exceeds_false_alarms(posers) or (together is not None and together <= VOID)
    counts = {level: count_alarms(posers, float(level)) for level in LEVELS}
    beside = PosersRow(n=len(posers), alarms=counts, p_values=posers)
    least = min((c.p_value_holm or 0.0 for c in clients if is_clean(c)), default=None)
    row = row_of(
        InferenceRow,
        run,
        clients=clients,
        n_tested=sum(c.p_value is not None for c in clients),
        n_detected=0,
        posers=beside,
        void=void,
        may_differ=may_differ,
        family=family,
        n_nonmember_subjects=None if subjects is None else len(np.unique(subjects[1])),
        p_value=least and min(1.0, least * family),
        p_value_untrained=together,
    )
    return replace(row, n_detected=len(detected(row)))
