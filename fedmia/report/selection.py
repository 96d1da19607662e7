"""Which rows are shown one by one: of many clients those that matter, and why; of an attack one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import median

from fedmia.records.attack_rows import AttackRow, with_auc
from fedmia.records.client_rows import CLIENT, ClientInferenceRow, ClientRow
from fedmia.records.rows import Report
from fedmia.report.judgement import exceeds_claim, names_in_verdict, parts_of

FEW = 20  # clients that are all shown, and most that are shown of more
MOST = 1000  # clients of which report.json holds every row
LARGE = 1.5  # times the median: below, a client holds about as much as the others


def select_clients(report: Report) -> list[ClientRow]:
    """All of at most FEW clients, in their order; of more, FEW of those that matter, each with
    `why`, the most leaking first. Each reason names clients in turn, so that none crowds out the
    others."""
    if not has_many_clients(report) or all(row.why is not None for row in report.clients):
        return report.clients
    counts = report.client_counts
    lists = reasons(report.clients, None if counts is None else counts.median_size)
    selected: dict[int, ClientRow] = {}
    for turn in zip_longest(*lists.values()):
        for reason, row in zip(lists, turn, strict=True):
            if row is not None and (row.id in selected or len(selected) < FEW):
                listed = selected.get(row.id, replace(row, why=[]))
                selected[row.id] = replace(listed, why=[*(listed.why or ()), reason])
        if len(selected) == FEW:
            break
    return sorted(selected.values(), key=lambda row: 1.0 if row.auc is None else -row.auc)


def unit_of(report: Report) -> str:
    """Whose images the report tells apart: a `client`'s, or a `subject`'s, such as a patient's."""
    sets = (row.whose for inference in report.dataset_inference for row in inference.clients)
    return next((w for w in (*(c.whose for c in report.clients), *sets)), CLIENT)


def has_many_clients(report: Report) -> bool:
    """Whether there are more clients than are shown one by one."""
    return count_clients(report) > FEW


def count_clients(report: Report) -> int:
    """How many clients there are, listed or not."""
    counts = report.client_counts
    return len(report.clients) if counts is None else counts.clients


def reasons(
    rows: Sequence[ClientRow], median_size: float | None = None
) -> Mapping[str, Sequence[ClientRow]]:
    """Reason -> clients for which it speaks, the most telling first.

    The most leaking have the highest lower ends of their 95 % intervals, the least leaking the
    lowest upper ones: by the AUC alone they would be those with the fewest images.

    Args:
        rows: of all clients, or of those that set themselves apart.
        median_size: of the images that a client holds, where `rows` are not of all.

    Returns:
        Rows by reason.
    """
    scored = with_auc(rows)
    ranked = sorted(scored, key=lambda row: -row.auc_ci[0])
    excluding_half = [row for row in ranked if row.low > 0.5]
    excluding_half += [row for row in reversed(ranked) if row.high < 0.5]
    defended = [row for row in ranked if row.defence]
    middle = median(row.size for row in rows) if median_size is None else median_size
    by_size = sorted(rows, key=lambda row: -row.size)
    lists = {
        "not honest": [row for row in rows if row.role != "honest"],
        "claim refuted": [row for row in rows if any(map(exceeds_claim, parts_of(row.defence)))],
        "interval excludes 0.5": excluding_half,
        "most leaking": ranked,
        "least leaking": sorted(scored, key=lambda row: row.auc_ci[1]),
        # Where all are, it sets none apart.
        "defended": defended if len(defended) < len(ranked) else [],
        "most images": [row for row in by_size if row.size > LARGE * middle],
    }
    if median_size is not None:  # the largest epsilon is to be among those that are listed
        stated = [(r, e.value) for r in rows if (d := r.defence) and (e := d.epsilon)]
        stated.sort(key=lambda s: -(math.inf if s[1] is None else s[1]))
        lists["largest epsilon"] = [row for row, _ in stated]
    return lists


def is_reading(report: Report, row: AttackRow) -> bool:
    """Whether an attack is another reading of one that the report has, and no sentence names it.

    Args:
        report: with its attacks.
        row: one of them.

    Returns:
        Whether it stands apart from the table of attacks.
    """
    base = row.name.removesuffix(f"-{row.reading}")
    if base == row.name or row.name in names_in_verdict(report):
        return False
    return any(other.name == base for other in report.attacks)


def most_leaking_first(rows: Sequence[AttackRow]) -> list[AttackRow]:
    """Attacks by falling AUC, those without an AUC last."""
    return sorted(rows, key=lambda r: -1.0 if r.auc is None else r.auc, reverse=True)


def select_inferred(rows: Sequence[ClientInferenceRow]) -> list[ClientInferenceRow]:
    """All of at most FEW rows, in their order; of more, the FEW with the smallest p-values."""
    if len(rows) <= FEW:
        return list(rows)
    return sorted(rows, key=lambda r: 2.0 if r.p_value is None else r.p_value)[:FEW]
