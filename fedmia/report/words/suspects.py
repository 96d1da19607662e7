"""Which client attacks, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.records.client_rows import SuspectRow
from fedmia.report.words.numbers import number

RESTS_ON = (
    "An alarm is a reason to look, no proof, and an attacker who knows the rule can hide. How "
    "often honest federations raise one, and attackers none: docs/findings/who_attacks.md."
)
MOST = 10  # most clients that are named
RANK_ALONE = (
    "It is a rank alone, and no alarm is raised: of {clients} clients who are alike, each comes "
    "first by chance one time in {clients}. An alarm needs honest federations of the same size, "
    "and the loss of public images: docs/findings/who_attacks.md says which sizes have one."
)


def suspects_sentence(rows: Sequence[SuspectRow]) -> str | None:
    """Who stands out, by what, and what that rests on; None without updates."""
    if not rows or rows[0].suspicion is None:
        return None
    text = _about_ranked(rows)
    if unranked := [str(row.client) for row in rows if row.suspicion is None]:
        more = f" and {len(unranked) - MOST} more" if len(unranked) > MOST else ""
        names = ", ".join(unranked[:MOST]) + more
        text += f" Not ranked, as nothing that they sent can be compared: client {names}."
    return text


def _about_ranked(rows: Sequence[SuspectRow]) -> str:
    if alarms := [describe(row) for row in rows if row.alarm]:
        return f"Standing out further than honest clients do: {'; '.join(alarms)}. {RESTS_ON}"
    if rows[0].alarm is None:
        alone = RANK_ALONE.format(clients=sum(row.suspicion is not None for row in rows))
        return f"The client that stands out most is {describe(rows[0])}. {alone}"
    most = describe(rows[0])
    return f"No client stands out further than honest ones do; most does {most}. {RESTS_ON}"


def describe(row: SuspectRow) -> str:
    """`client 9 (suspicion 40.1: in round 8 35.3 times the median norm, cosine -0.69, loss of
    public images +0.49)`."""
    text = f"client {row.client} (suspicion {number(row.suspicion, 1)}: in round {row.round}, "
    if row.cosine is None:
        return f"{text}an update that is {'not finite' if row.norm is None else 'all zero'})"
    text += f"{row.norm:.3g} times the median norm, cosine {number(row.cosine)}"
    if row.loss_change is not None:
        text += f", loss of public images {row.loss_change:+.2g}"
    return f"{text})"
