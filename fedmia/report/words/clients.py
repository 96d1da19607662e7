"""What clients and subjects leak, and who is named, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmia.records.attack_rows import with_auc
from fedmia.records.client_rows import NEVER, ClientDistribution, ClientRow, CohortRow
from fedmia.records.rows import Report
from fedmia.report.selection import FEW, unit_of
from fedmia.report.words.numbers import estimate, interval, number, signed
from fedmia.statistics.matching import DRAWS, share_over

FIRST = 3  # clients or subjects that a sentence names of many


def clients_sentence(report: Report) -> str | None:
    """What is said of the clients: a ranking where it stands, else the range beside the nulls; of
    many, how they are spread and the ranking."""
    rows = [(c.auc, c) for c in report.clients if c.auc is not None]
    if (spread := report.client_distribution) is not None:
        ranked = report.client_ranking or "No ranking: the simultaneous intervals overlap."
        cohorts = cohort_sentence(report.client_cohorts)
        spreads = distribution_sentence(spread, str(rows[0][1].attack))
        return f"{spreads} {ranked}{cohorts}"
    if not rows or report.client_ranking:
        return report.client_ranking if rows else None
    unit = unit_of(report)
    posers = {"client": "non-members in the place of theirs", "subject": "non-member subjects"}
    aucs, by = [auc for auc, _ in rows], rows[0][1].attack
    nulls = [c.null_ci for _, c in rows if c.null_ci is not None]
    count = f"{len(rows)} {unit}{'s' * (len(rows) > 1)}"
    sentence = f"By {unit}, AUC {number(min(aucs))} to {number(max(aucs))} ({by}, {count}"
    if nulls:
        sentence += (
            f"; {posers[unit]} {number(min(n[0] for n in nulls))} to "
            f"{number(max(n[1] for n in nulls))}"
        )
    if unit == "subject":
        others = max((a.n_nonmember_subjects or 0 for a in report.attacks), default=0)
        return f"{sentence}). {_riskiest(report.clients, min(others, DRAWS))}"
    return f"{sentence}). No ranking: " + (
        "there is only one client." if len(rows) == 1 else "the simultaneous intervals overlap."
    )


def _riskiest(rows: Sequence[ClientRow], others: int) -> str:
    """The first few subjects with their intervals, and how many lie over the range of the null,
    which so many `others` give."""
    scored = with_auc(rows)
    first = [f"{row.name} {estimate(row.auc, row.auc_ci)}" for row in scored[:FIRST]]
    text = f"Highest (95 % intervals): {', '.join(first)}."
    if nulls := [row for row in scored if row.null_ci is not None]:
        over = sum(row.auc > row.null_ci[1] for row in nulls)
        expected = number(share_over(others) * len(nulls), 1)
        text = (
            f"{over or 'None'} of {len(nulls)} lie over the range of non-member subjects (expected "
            f"without a leak: {expected}). {text}"
        )
    return text


def cohort_sentence(rows: Sequence[CohortRow]) -> str:
    """How many scored members no model was trained on, beside those of clients that trained."""
    never = next((row for row in rows if row.cohort == NEVER), None)
    if never is None:
        return ""
    scored = sum(row.n_members for row in rows)
    return (
        f" {never.n_members:,} of the {scored:,} scored members were never trained on, as no round "
        f"drew their clients ({never.clients:,} in all): of the others the attacks may find more."
    )


def distribution_sentence(spread: ClientDistribution, by: str) -> str:
    """Median and middle nine tenths of all clients, and how many stand out, beside their nulls.

    Args:
        spread: the report's `client_distribution`.
        by: name of the attack.

    Returns:
        The sentence.
    """

    def middle(p: Sequence[float]) -> str:
        return f"median {number(p[50])}, nine in ten {number(p[5])} to {number(p[95])}"

    sentence = f"By client, AUC {middle(spread.percentiles)} ({by}, {spread.clients:,} clients"
    if spread.null_percentiles is not None:
        null = middle(spread.null_percentiles)
        sentence += f"; non-members in the place of theirs: {null}"
    sentence += f"). Clients with a simultaneous interval over 0.5: {spread.over_half:,}"
    sentence += f", under 0.5: {spread.under_half:,}"
    if spread.with_null:
        sentence += f"; with an AUC over the range of their null: {spread.over_null:,}"
        sentence += f" (expected without a leak: {spread.over_null_expected:,.0f})"
    return f"{sentence}."


def named_sentence(report: Report) -> str | None:
    """How often an attack names the client whose image it was, beside chance and its controls."""
    parts = []
    for row in report.named_clients:
        text = (
            f"{row.attack} names the client of {row.correct} of {row.n} scored members: "
            f"{estimate(row.accuracy, row.ci)}. Always naming the largest client would give "
            f"{number(row.chance)}"
        )
        if row.placebo:
            placebo = estimate(row.placebo.accuracy, row.placebo.ci)
            text += f", and the placebo, clients that never saw these images, {placebo}"
        parts.append(f"{text}.")
        if null := row.null:
            nulls = null, row.placebo and row.placebo.null
            over = [f"{signed(n.difference)} {interval(n.difference_ci)}" for n in nulls if n]
            like = f"the same {null.alike} are given to that client at a rate of"
            like = f"Non-members of {like} {estimate(null.accuracy, null.ci)}"
            parts.append(f"{like}; the difference is {', and under the placebo '.join(over)}.")
    return " ".join(parts) or None


def per_client_sentence(report: Report) -> str | None:
    """How well an attack tells whether one given client trained on an image, and the placebo."""
    parts = []
    for row in report.named_clients:
        result = row.per_client
        if result is None:
            continue
        text = (
            f"For the question whether one given client trained on an image, {row.attack} "
            f"has AUC {estimate(result.auc, result.auc_ci)} (TPR "
            f"{number(result.tpr_at_fpr['0.01'])} at 1 % FPR; {result.n_members} members, "
            f"{result.n_nonmembers} non-members, {result.clients} clients)"
        )
        placebo = row.placebo and row.placebo.per_client
        if placebo:
            control = estimate(placebo.auc, placebo.auc_ci)
            text += f", and under the placebo, clients that never saw these images, {control}"
        parts.append(
            f"{text}. Each 95 % interval covers one number alone; the verdict does not use it."
        )
    return " ".join(parts) or None


def ranking(rows: Sequence[ClientRow]) -> str | None:
    """A sentence where simultaneous intervals of two clients separate, else None: no ranking."""
    scored = sorted(with_auc(rows), key=lambda row: -row.auc)
    name_or_count = _name_less_leaking if len(scored) <= FEW else _count_less_leaking
    if not (parts := name_or_count(scored)):
        return None
    by = scored[0].attack
    return f"By {by} AUC, these clients leak measurably more: {'; '.join(parts)}."


def _name_less_leaking(scored: Sequence[Any]) -> list[str]:
    parts = []
    for row in scored:
        under = [f"{one.id} ({number(one.auc)})" for one in scored if one.high < row.low]
        if under:
            parts.append(f"client {row.id} ({number(row.auc)}) more than {', '.join(under)}")
    return parts


def _count_less_leaking(scored: Sequence[Any]) -> list[str]:
    """The same of many clients: the first few, and how many they leave behind."""
    ends = np.sort([row.high for row in scored])
    counts = np.searchsorted(ends, [row.low for row in scored])
    over = [
        f"client {row.id} ({number(row.auc)}) more than {n} others"
        for row, n in zip(scored, counts, strict=True)
        if n
    ]
    parts = over[:FIRST]
    if len(over) > FIRST:
        parts.append(f"{len(over) - FIRST:,} more clients likewise")
    return parts
