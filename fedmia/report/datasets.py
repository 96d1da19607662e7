"""Was this client's data set trained on? P-values by client, their control, and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records import DatasetInference
from fedmia.records.fields import row_of
from fedmia.records.rows import ClientInferenceRow, InferenceRow, PosersRow
from fedmia.report.selection import FEW
from fedmia.statistics.pvalues import alarms, fails, holm

LEVELS = ("0.01", "0.05")
FOUND = 0.05  # of the p-values that Holm corrected


def inference_row(run: DatasetInference) -> InferenceRow:
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
    void = fails(posers) or fails(untrained)
    counts = {level: alarms(posers, float(level)) for level in LEVELS}
    said = statement(clients, posers, void)
    row: PosersRow = {"n": len(posers), "alarms": counts, "p_values": posers}
    return row_of(InferenceRow, run, clients=clients, posers=row, void=void, statement=said)


def statement(clients: Sequence[ClientInferenceRow], posers: Sequence[float], void: bool) -> str:
    """Whose data set was found, beside the false alarms among posers."""
    asked = [c for c in clients if c["p_value_holm"] is not None]
    told = [str(c["client"]) for c in asked if (c["p_value_holm"] or 0.0) <= FOUND]
    control = f"{alarms(posers, 0.05)} of {len(posers)} posing sets of non-members have p <= 0.05"
    if void:
        return f"Control failed, no client is said to be found: {control}"
    if len(asked) == 1:
        said = "The set was trained on" if told else "That the set was trained on is not shown"
        p = min(c["p_value"] or 0.0 for c in asked)
        return f"{said} (p = {p:.4f}); {control}"
    more = f" and {len(told) - FEW:,} more" if len(told) > FEW else ""
    who = f": {', '.join(told[:FEW])}{more}" if told else ""
    return (
        f"The data sets of {len(told)} of {len(asked)} clients are found, p <= {FOUND} for all "
        f"clients together{who}; {control}"
    )
