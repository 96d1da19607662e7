"""Which client attacks: the sentence beside the table of suspects."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records.client_rows import SuspectRow

ALARM = 0.05  # p-value up to which a client is named
# Of benchmarks/results/suspects.json: honest federations of ten clients, and those with an alarm.
HONEST, FALSE_ALARMS = 30, 7
RESTS_ON = (
    "The p-value holds for all clients at once, and takes honest ones to differ by chance alone. "
    f"They differ by more: in {FALSE_ALARMS} of {HONEST} honest federations of ten clients one was "
    "named. It is a reason to look, no proof, and an attacker who knows the rule can hide."
)


def is_named(row: SuspectRow) -> bool:
    """Whether the client stands out as no honest one would."""
    return row["p_value"] is not None and row["p_value"] <= ALARM


def suspects_sentence(rows: Sequence[SuspectRow]) -> str | None:
    """Who stands out, by what, and what that rests on; None without updates."""
    if not rows or rows[0]["suspicion"] is None:
        return None
    if alarms := [describe(row) for row in rows if is_named(row)]:
        return f"Standing out by their updates: {'; '.join(alarms)}. {RESTS_ON}"
    return f"No client stands out by its updates; most does {describe(rows[0])}. {RESTS_ON}"


def describe(row: SuspectRow) -> str:
    """`client 9 (p 0.0004: in round 8 35.3 times the median norm, cosine -0.69, loss of public
    images +0.49)`."""
    text = f"client {row['client']} (p {row['p_value']:.2g}: in round {row['round']} "
    text += f"{row['norm']:.3g} times the median norm, cosine {row['cosine']:.2f}"
    if row["loss_change"] is not None:
        text += f", loss of public images {row['loss_change']:+.2g}"
    return f"{text})"
