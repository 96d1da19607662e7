"""Was this client's data set trained on? P-values by client, their control, and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records import DatasetInferenceResults
from fedmia.records.client_rows import ClientInferenceRow, InferenceRow, PosersRow
from fedmia.records.fields import row_of
from fedmia.report.selection import FEW
from fedmia.statistics.pvalues import count_alarms, exceeds_false_alarms, holm

LEVELS = ("0.01", "0.05")
SIGNIFICANCE = 0.05  # of the p-values that Holm corrected


def inference_row(run: DatasetInferenceResults) -> InferenceRow:
    """One entry of the report's `dataset_inference`."""
    corrected = holm([c.p_value for c in run.clients])
    null = {c.client: c.p_value for c in run.untrained}
    clients = [
        row_of(
            ClientInferenceRow,
            c,
            client=-1 if c.client is None else c.client,
            p_value_holm=together,
            n_nonmembers=c.others,
            p_value_untrained=null.get(c.client),
        )
        for c, together in zip(run.clients, corrected, strict=True)
    ]
    posers = [p.p_value for p in run.posers if p.p_value is not None]
    untrained = [p for p in null.values() if p is not None]
    void = exceeds_false_alarms(posers) or exceeds_false_alarms(untrained)
    counts = {level: count_alarms(posers, float(level)) for level in LEVELS}
    sentence = statement(clients, posers, void)
    row: PosersRow = {"n": len(posers), "alarms": counts, "p_values": posers}
    return row_of(InferenceRow, run, clients=clients, posers=row, void=void, statement=sentence)


def statement(clients: Sequence[ClientInferenceRow], posers: Sequence[float], void: bool) -> str:
    """Whose data set was found, beside the false alarms among posers.

    Args:
        clients: rows of the tested sets.
        posers: p-values of the posing sets.
        void: whether a control failed.

    Returns:
        The sentence, without its final stop.
    """
    tested = [c for c in clients if c["p_value_holm"] is not None]
    detected = [str(c["client"]) for c in tested if (c["p_value_holm"] or 0.0) <= SIGNIFICANCE]
    control = (
        f"{count_alarms(posers, 0.05)} of {len(posers)} posing sets of non-members have p <= 0.05"
    )
    if void:
        return f"Control failed, so no client is named: {control}"
    if len(tested) == 1:
        finding = (
            "The encoder was trained on the set"
            if detected
            else "No evidence of training on the set"
        )
        p = min(c["p_value"] or 0.0 for c in tested)
        return f"{finding} (p = {p:.4f}); {control}"
    more = f" and {len(detected) - FEW:,} more" if len(detected) > FEW else ""
    who = f": {', '.join(detected[:FEW])}{more}" if detected else ""
    return (
        f"The data sets of {len(detected)} of {len(tested)} clients are detected, Holm's p <= "
        f"{SIGNIFICANCE}"
        f"{who}; {control}"
    )
