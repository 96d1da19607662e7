"""Was this client's data set trained on? P-values by client, their control, and a sentence."""

from __future__ import annotations

import math

import numpy as np

from fedmia.records import DatasetInferenceResults, RunScores
from fedmia.records.client_rows import (
    CLIENT,
    SUBJECT,
    ClientInferenceRow,
    InferenceRow,
    PosersRow,
)
from fedmia.records.fields import row_of
from fedmia.report.format import format_p
from fedmia.report.selection import FEW
from fedmia.statistics.pvalues import VOID, count_alarms, exceeds_false_alarms, holm

CORRECTED = "corrected for all tests of this report"
UNCONTROLLED = "; no control tells training from a shift between the sides"
LEVELS = ("0.01", "0.05")
SIGNIFICANCE = 0.05  # of the p-values that Holm corrected


def inference_row(
    run: DatasetInferenceResults,
    family: int,
    scores: RunScores | None = None,
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
    names = scores.subject_names if scores and subjects else ()
    whose = CLIENT if subjects is None else SUBJECT
    corrected = holm([c.p_value for c in run.clients])
    null = {c.client: c.p_value for c in run.untrained}
    clients = [
        row_of(
            ClientInferenceRow,
            c,
            whose=whose,
            client=-1 if c.client is None else c.client,
            name=None if subjects is None or c.client is None else names[c.client],
            p_value_holm=adjusted,
            n_nonmembers=c.others,
            p_value_untrained=null.get(c.client),
        )
        for c, adjusted in zip(run.clients, corrected, strict=True)
    ]
    if subjects is not None:  # the riskiest first
        clients.sort(key=lambda c: c.p_value or 0.0)
    posers = [p.p_value for p in run.posers if p.p_value is not None]
    together = run.untrained_together
    void = exceeds_false_alarms(posers) or (together is not None and together <= VOID)
    counts = {level: count_alarms(posers, float(level)) for level in LEVELS}
    beside = PosersRow(n=len(posers), alarms=counts, p_values=posers)
    least = min((c.p_value_holm or 0.0 for c in clients if _is_clean(c)), default=None)
    return row_of(
        InferenceRow,
        run,
        clients=clients,
        posers=beside,
        void=void,
        may_differ=may_differ,
        family=family,
        n_nonmember_subjects=None if subjects is None else len(np.unique(subjects[1])),
        p_value=least and min(1.0, least * family),
        p_value_untrained=together,
    )


def reach(row: InferenceRow) -> str:
    """That too few non-member subjects could establish no set, and how many could.

    One subject among n others has a p-value of 1 / (n + 1) at least.

    Args:
        row: with the p-values.

    Returns:
        Text that goes on after a statement, or nothing.
    """
    tests = row.family * sum(c.p_value is not None for c in row.clients)
    others = row.n_nonmember_subjects
    if others is None or tests <= SIGNIFICANCE * (others + 1):
        return ""
    needed = math.ceil(tests / SIGNIFICANCE) - 1
    return (
        f"; with {others} non-member subjects p is at least {format_p(1 / (others + 1))}, so none "
        f"could be established: {tests} tests need {needed:,}"
    )


def detected(row: InferenceRow) -> list[ClientInferenceRow]:
    """The sets on which the encoder was trained; none where a control failed, or where the least
    p-value is no leak beside the other tests of the report."""
    if row.void or row.p_value is None or row.p_value > SIGNIFICANCE:
        return []
    return [c for c in row.clients if _is_clean(c) and (c.p_value_holm or 0) <= SIGNIFICANCE]


def _is_clean(row: ClientInferenceRow) -> bool:
    """Whether a set was tested, and the untrained encoder does not tell it as well."""
    null = row.p_value_untrained
    return row.p_value_holm is not None and (null is None or null > SIGNIFICANCE)


def _control(row: InferenceRow) -> str:
    """What the test says where nothing leaks: of posing sets, else on the untrained encoder."""
    posers = row.posers
    if posers.n:
        alarms = f"{posers.alarms['0.05']} of {posers.n}"
        return f"{alarms} posing sets of non-members have p <= 0.05"
    values = [p for c in row.clients if (p := c.p_value_untrained) is not None]
    if not values:
        return "there is no control"
    if (p := row.p_value_untrained) is None:
        return f"on the untrained encoder p = {format_p(values[0])}"
    return f"on the untrained encoder all sets together have p = {format_p(p)}"


def statement(row: InferenceRow) -> str:
    """Whose data set was found, beside the false alarms of a control, and what could have been
    found; without its final stop."""
    return _result(row) + reach(row) + UNCONTROLLED * row.may_differ


def _result(row: InferenceRow) -> str:
    tested = [c for c in row.clients if c.p_value_holm is not None]
    known, control = [c.name or str(c.client) for c in detected(row)], _control(row)
    kind = row.clients[0].whose if row.clients else CLIENT
    together = format_p(row.p_value)
    if row.void:
        return f"Control failed, so no {kind} is named: {control}"
    if len(tested) == 1:
        finding = (
            "The encoder was trained on the set" if known else "No evidence of training on the set"
        )
        (c,) = tested
        finding += f" of {c.name}" if c.name is not None else ""
        p = f"p = {format_p(c.p_value)}, {CORRECTED} {together}"
        if not _is_clean(c):
            null = format_p(c.p_value_untrained)
            p = f"p = {format_p(c.p_value)}, but on the untrained encoder {null}"
        return f"{finding} ({p}); {control}"
    more = f" and {len(known) - FEW:,} more" if len(known) > FEW else ""
    who = f": {', '.join(known[:FEW])}{more}" if known else ""
    # A row that lists few of many knows no more than that all of these are detected.
    least = "at least " * (row.n_clients is not None and len(known) == len(row.clients))
    return (
        f"The data sets of {least}{len(known)} of {row.n_clients or len(tested)} {kind}s are "
        f"detected, Holm's p <= "
        f"{SIGNIFICANCE}{who}; the least p, {CORRECTED}: {together}; {control}"
    )
