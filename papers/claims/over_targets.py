"""What a paper says of its table, and whether it holds here.

A claim compares two columns, or a column with a number, over the rows of its entry. Each target
gives one difference, the mean over rows; the interval is Student's over targets. One claim of a
paper is primary and named before the runs. Intervals are simultaneous (Bonferroni): those of the
primary claim over levels of leak, those of all other claims of the paper over claims and levels.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedmia.statistics.spread import p_value, t_interval
from fedmia.study.points import BySeed, paired_differences
from papers.cells import Reading
from papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
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
        `verdict` (`held` where the interval lies over 0, `not held` where it lies under 0, `not
        run` where the scale has no cell of it, else `undecided`), `mean` difference over targets
        (None where no target is finished), its simultaneous interval `low`, `high` (None with fewer
        than two targets), `p` of Student's t test that the mean is 0, not corrected, and how many
        `targets` gave a difference.
    """
    by_claim = [
        (entry, claim, level, differences(claim, level, cells, readings), is_run)
        for entry, cells, readings in entries
        for claim in entry.claims
        for level in dict.fromkeys(cell.level for cell in cells)
        for is_run in [_is_run(claim, level, cells)]
    ]
    families = Counter(_family(entry, claim) for entry, claim, *_, is_run in by_claim if is_run)
    return [
        _judge(entry, claim, level, values, families[_family(entry, claim)] if is_run else 0)
        for entry, claim, level, values, is_run in by_claim
    ]


def _family(entry: Entry, claim: Mapping[str, Any]) -> tuple[str, bool]:
    """What a claim is corrected together with."""
    return entry.paper, bool(claim.get("primary"))


def _is_run(claim: Mapping[str, Any], level: str, cells: Sequence[TableCell]) -> bool:
    """Whether the scale has cells of a claim, finished or not."""
    rows = claim.get("rows")
    return any(c.jobs and c.level == level and (not rows or c.row in rows) for c in cells)


def differences(
    claim: Mapping[str, Any], level: str, cells: Sequence[TableCell], readings: Readings
) -> list[float]:
    """One difference a target: the mean over the rows whose two sides have the same targets.

    Args:
        claim: `better` names a column, `over` a column or a number; `rows`, if given, the rows.
        level: of leak.
        cells: of the entry.
        readings: their numbers.

    Returns:
        The differences; empty where these rows are not all of the same targets, or none is left.
    """
    rows = claim.get("rows") or list(dict.fromkeys(cell.row for cell in cells))
    pairs = list(_pairs(claim, level, rows, readings))
    if len({frozenset(better) for better, _ in pairs}) != 1:
        return []  # a target that one row lacks would be compared with another's
    by_row = [paired_differences(better, other) for better, other in pairs]
    return [statistics.fmean(values) for values in zip(*by_row, strict=True)]


def _pairs(
    claim: Mapping[str, Any], level: str, rows: Sequence[str], readings: Readings
) -> Iterator[tuple[BySeed, BySeed]]:
    """The numbers of each row whose two sides are of the same targets."""
    over = claim["over"]
    for row in rows:
        better = readings.get((level, row, claim["better"]), Reading(None)).by_seed
        if isinstance(over, int | float):
            other: BySeed = dict.fromkeys(better, over)
        else:
            other = readings.get((level, row, over), Reading(None)).by_seed
        if better and better.keys() == other.keys():
            yield better, other


def _judge(
    entry: Entry, claim: Mapping[str, Any], level: str, values: Sequence[float], together: int
) -> dict[str, Any]:
    ci = t_interval(values, together) if together else None
    verdict = UNDECIDED if together else NOT_RUN
    if ci is not None:
        verdict = HOLDS if ci[0] > 0 else FAILS if ci[1] < 0 else UNDECIDED
    low, high = ci or (None, None)
    return {
        "entry": entry.name,
        "paper": entry.paper,
        "says": claim["says"],
        "primary": bool(claim.get("primary")),
        "level": level,
        "verdict": verdict,
        "mean": statistics.fmean(values) if values else None,
        "low": low,
        "high": high,
        "p": p_value(values) if len(values) > 1 else None,
        "targets": len(values),
    }
