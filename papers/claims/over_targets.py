"""What a paper says of its table, and whether it holds here.

A claim compares two columns, or a column with a number, over the rows of its entry. Each target
gives one difference, the mean over rows or the slope along them; the interval is Student's over
targets. One claim a paper is primary: `tables/primaries.yaml`, committed before its runs, names for
each the smallest effect of interest and the number of targets. Intervals are simultaneous and p is
corrected (Bonferroni): all primary claims are one family, whichever of them are run, the other
claims of a paper with their levels of leak are another.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import scipy

from fedmia.statistics.intervals import LEVEL, Interval
from fedmia.statistics.spread import p_value, t_interval
from fedmia.study.points import BySeed, known, paired_differences
from papers.cells import Reading
from papers.claims import EQUIVALENT, FAILS, HOLDS, NOT_RUN, UNDECIDED
from papers.entries import Entry, TableCell

Readings = Mapping[tuple[str, str, str], Reading]  # (level, row, column) -> its number


def judge_claims(
    entries: Sequence[tuple[Entry, Sequence[TableCell], Readings]],
) -> list[dict[str, Any]]:
    """Judge every claim of some entries.

    Args:
        entries: each with its cells and their numbers.

    Returns:
        The claims in the order of the entries, those of an entry once a level: `entry` and `paper`
        by name, what it `says`, whether it is `primary`, `level` of leak (empty for all together),
        `verdict` as of `_verdict`, `mean` difference over targets (None where no target is
        finished), its simultaneous interval `low`, `high` (None with fewer than two targets), `p`
        of Student's t test that the mean is 0 and, of a claim with a margin, `p_equivalent` that it
        lies outside, both corrected, how many `targets` gave a difference, and how many were
        `planned` (None where the claim names no number).
    """
    by_claim = [
        (entry, claim, level, differences(claim, level, cells, readings), is_run)
        for entry, cells, readings in entries
        for claim in entry.claims
        for level in dict.fromkeys(cell.level for cell in cells)
        if level in claim.get("levels", [level])
        for is_run in [_is_run(claim, level, cells)]
    ]
    others = Counter(e.paper for e, c, *_, is_run in by_claim if is_run and "primary" not in c)
    return [
        _judge(e, c, level, values, c.get("primary", {}).get("family", others[e.paper]) * is_run)
        for e, c, level, values, is_run in by_claim
    ]


def _is_run(claim: Mapping[str, Any], level: str, cells: Sequence[TableCell]) -> bool:
    """Whether the scale has cells of a claim, finished or not."""
    rows = claim.get("rows")
    return any(c.jobs and c.level == level and (not rows or c.row in rows) for c in cells)


def differences(
    claim: Mapping[str, Any], level: str, cells: Sequence[TableCell], readings: Readings
) -> list[float]:
    """One difference a target: the mean over the rows whose two sides have the same targets.

    Args:
        claim: `better` names a column or several, whose mean it is, `over` the like or a number;
            `rows`, if given, the rows, `over_rows` those of `over`, if others; `slope`: how much
            the difference grows where the number that names a row doubles, in place of its mean;
            `levels`, if given, those at which it is judged, '' where a scale has none.
        level: of leak.
        cells: of the entry.
        readings: their numbers.

    Returns:
        The differences; empty where these rows are not all of the same targets, none is left, or
        one of a slope is missing.
    """
    rows = claim.get("rows") or list(dict.fromkeys(cell.row for cell in cells))
    pairs = list(_pairs(claim, level, rows, readings))
    if len({frozenset(better) for better, _ in pairs}) != 1:
        return []  # a target that one row lacks would be compared with another's
    by_row = [known(paired_differences(better, other)) for better, other in pairs]
    if not claim.get("slope"):
        return [statistics.fmean(values) for values in zip(*by_row, strict=True)]
    doublings = [math.log2(float(row)) for row in rows]
    by_target = list(zip(*by_row, strict=True)) if len(by_row) == len(rows) else []
    return [statistics.linear_regression(doublings, values).slope for values in by_target]


def _pairs(
    claim: Mapping[str, Any], level: str, rows: Sequence[str], readings: Readings
) -> Iterator[tuple[BySeed, BySeed]]:
    """The numbers of each row whose two sides are of the same targets."""
    over = claim["over"]
    for row, over_row in zip(rows, claim.get("over_rows", rows), strict=True):
        better = _mean(claim["better"], level, row, readings)
        if isinstance(over, int | float):
            other: BySeed = dict.fromkeys(better, over)
        else:
            other = _mean(over, level, over_row, readings)
        if better and better.keys() == other.keys():
            yield better, other


def _mean(columns: str | Sequence[str], level: str, row: str, readings: Readings) -> BySeed:
    """The mean of some columns, of the targets that all of them have."""
    names = [columns] if isinstance(columns, str) else columns
    sides = [readings.get((level, row, name), Reading(None)).by_seed for name in names]
    shared = [seed for seed in sides[0] if all(seed in side for side in sides)]
    return {seed: statistics.fmean(side[seed] for side in sides) for seed in shared}


def _judge(
    entry: Entry, claim: Mapping[str, Any], level: str, values: Sequence[float], together: int
) -> dict[str, Any]:
    plan = claim.get("primary", {})
    ci = t_interval(values, together) if together else None
    low, high = ci or (None, None)
    ps = (p_value(values), _p_equivalent(values, plan.get("margin"))) if ci else (None, None)
    p, p_equivalent = (None if one is None else min(1.0, one * together) for one in ps)
    whole = len(values) >= plan.get("targets", 2)
    verdict = _verdict(ci if whole else None, plan.get("effect", 0.0), p_equivalent)
    return {
        "entry": entry.name,
        "paper": entry.paper,
        "says": claim["says"],
        "primary": bool(plan),
        "level": level,
        "verdict": verdict if together else NOT_RUN,
        "mean": statistics.fmean(values) if values else None,
        "low": low,
        "high": high,
        "p": p,
        "p_equivalent": p_equivalent,
        "targets": len(values),
        "planned": plan.get("targets"),
    }


def _verdict(ci: Interval | None, effect: float, p_equivalent: float | None) -> str:
    """`equivalent` where two one-sided tests reject that the mean lies outside of the margin,
    `held` where the interval lies over 0, `not held` where it lies under the smallest effect of
    interest, else `undecided`, as with fewer targets than planned."""
    if ci is None:
        return UNDECIDED
    if p_equivalent is not None and p_equivalent <= 1 - LEVEL:
        return EQUIVALENT
    return HOLDS if ci[0] > 0 else FAILS if ci[1] < effect else UNDECIDED


def _p_equivalent(values: Sequence[float], margin: float | None) -> float | None:
    """The larger p of the two one-sided t tests that the mean is at most -margin, at least margin
    (Schuirmann, 1987); None without a margin."""
    if margin is None:
        return None
    sides = ((-margin, "greater"), (margin, "less"))
    return max(float(scipy.stats.ttest_1samp(values, at, alternative=a).pvalue) for at, a in sides)
