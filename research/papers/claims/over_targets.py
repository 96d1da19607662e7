"""What a paper says of its table, and whether it holds here.

A claim compares two columns, or a column with a number, over the rows of its entry. Each target
gives one difference, the mean over rows or the slope along them; the interval is Student's over
targets. Every claim has a smallest effect of interest: its own `effect`, or a QUARTER of the
paper's difference. Where no attack of its `reference` lies over chance, the targets leak to nobody,
and there is no test. One claim a paper is primary: `tables/primaries.yaml`, committed before its
runs, names for each the number of targets. Intervals are simultaneous and p is corrected
(Bonferroni): all primary claims are one family, whichever of them are run, the other claims of a
paper with their levels of leak are another.
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
from research.papers.cells import Reading
from research.papers.claims import (
    EQUIVALENT,
    FAILS,
    NO_TEST,
    NOT_RUN,
    UNDECIDED,
    answer,
    deviation_limits,
    targets_needed,
)
from research.papers.entries import Entry, TableCell

TAKES = ("would_take", "would_take_low", "would_take_high")  # of an undecided claim
QUARTER = 0.25  # of the paper's own difference: less would not carry its sentence
Readings = Mapping[tuple[str, str, str], Reading]  # (level, row, column) -> its number
Tables = Mapping[str, tuple[Sequence[TableCell], Readings]]  # of each entry by its name


def judge_claims(
    entries: Sequence[tuple[Entry, Sequence[TableCell], Readings]],
) -> list[dict[str, Any]]:
    """Judge every claim of some entries.

    Args:
        entries: each with its cells and their numbers.

    Returns:
        The claims in the order of the entries, those of an entry once a level: `entry` and `paper`
        by name, what it `says`, whether it is `primary`, `level` of leak (empty for all together),
        `verdict` as of `_verdict`, its smallest `effect`, `mean` difference over targets (None
        where no target is finished), its simultaneous interval `low`, `high` (None with fewer than
        two targets), `p` of Student's t test that the mean is 0 and, of a claim with a margin,
        `p_equivalent` that it lies outside, both corrected, how many `targets` gave a difference,
        how many were `planned` (None where the claim names no number), and `parts`: of a claim
        over each of several columns `column`, `mean`, `ci`, `p` and `verdict` of each,
        whose least is that of the claim; and, where there are any, the seeds of targets with
        `no_answer` of a side, which gave nearly all images one score. Of an undecided claim, else
        None: the targets that it `would_take` at the deviation seen, as of `targets_needed`, and
        at the 95 % limits of that deviation, `would_take_low` and `would_take_high`; of one over
        each of several columns those of the part that takes most, beside each part's `would_take`
        and `would_take_ci`.
    """
    by_claim = [
        (entry, claim, level, _is_run(claim, level, cells))
        for entry, cells, _ in entries
        for claim in entry.claims
        for level in dict.fromkeys(cell.level for cell in cells)
        if level in claim.get("levels", [level])
    ]
    others = Counter(e.paper for e, c, *_, is_run in by_claim if is_run and "primary" not in c)
    tables = {entry.name: (cells, readings) for entry, cells, readings in entries}
    return [
        _judge(e, c, level, tables, _family(c, others[e.paper]) * is_run)
        for e, c, level, is_run in by_claim
    ]


def _family(claim: Mapping[str, Any], others: int) -> int:
    return claim.get("primary", {}).get("family", others)


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
            `each`: it is claimed of every column of `better`, not of their mean;
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


def smallest_effect(claim: Mapping[str, Any], cells: Sequence[TableCell]) -> float:
    """The smallest effect of interest of a claim.

    Args:
        claim: its own `effect`, or that of its plan, comes before the paper's numbers.
        cells: of its entry, with the paper's numbers.

    Returns:
        The effect, in the unit of the difference; 0 where the paper prints no number, either.
    """
    plan = claim.get("primary", claim)
    if "effect" in plan:
        return float(plan["effect"])
    run = [cell for cell in cells if cell.jobs] or cells
    printed: dict[tuple[str, str, str], Reading] = {
        ("", cell.row, cell.column): Reading(cell.theirs, by_seed={0: cell.theirs})
        for cell in run
        if cell.theirs is not None
    }
    theirs = differences(claim, "", run, printed)
    return QUARTER * theirs[0] if theirs else 0.0


def _judge(
    entry: Entry, claim: Mapping[str, Any], level: str, tables: Tables, together: int
) -> dict[str, Any]:
    cells, readings = tables[entry.name]
    plan, effect = claim.get("primary", {}), smallest_effect(claim, cells)
    test = not together or _has_leak(entry.name, claim, level, tables, together)
    columns = claim["better"] if claim.get("each") else [claim["better"]]
    parts = []
    for column in columns:
        values = differences({**claim, "better": column}, level, cells, readings)
        ci = t_interval(values, together) if together else None
        low, high = ci or (None, None)
        ps = (p_value(values), _p_equivalent(values, plan.get("margin"))) if ci else (None, None)
        p, p_equivalent = (None if one is None else min(1.0, one * together) for one in ps)
        whole = len(values) >= plan.get("targets", 2)
        verdict = _verdict(ci if whole else None, effect, p_equivalent, test=test)
        parts.append(
            {"column": column, "mean": statistics.fmean(values) if values else None, "low": low}
            | {"high": high, "p": p, "verdict": verdict, "p_equivalent": p_equivalent}
            | {"targets": len(values)}
            | _would_take(values if ci and verdict == UNDECIDED else (), effect, together)
        )
    least = min(parts, key=lambda part: math.inf if part["mean"] is None else part["mean"])
    verdict = _of_all([part["verdict"] for part in parts]) if together else NOT_RUN
    most = max(parts, key=lambda part: part["would_take"] or 0)
    return {
        "entry": entry.name,
        "paper": entry.paper,
        "says": claim["says"],
        "primary": bool(plan),
        "level": level,
        "verdict": verdict,
        "effect": effect,
        **{name: least[name] for name in ("mean", "low", "high", "p", "p_equivalent", "targets")},
        "planned": plan.get("targets"),
        **{name: most[name] if verdict == UNDECIDED else None for name in TAKES},
        "parts": [
            {name: part[name] for name in ("column", "mean", "p", "verdict", "would_take")}
            | {"ci": _ends(part, "low", "high"), "would_take_ci": _ends(part, *TAKES[1:])}
            for part in parts
            if claim.get("each")
        ],
        **({"no_answer": silent} if (silent := _no_answer(claim, level, readings)) else {}),
    }


def _no_answer(claim: Mapping[str, Any], level: str, readings: Readings) -> list[int]:
    """Seeds of targets to which a column of the claim has no answer in a row of it."""
    columns = {*_names(claim["better"]), *_names(claim["over"])}
    rows = {*claim.get("rows", ()), *claim.get("over_rows", ())}
    silent = {
        seed
        for (of, row, column), reading in readings.items()
        if of == level and column in columns and (not rows or row in rows)
        for seed in reading.no_answer
    }
    return sorted(silent)


def _names(side: Any) -> Sequence[str]:
    """The columns of a side of a claim; none of a number."""
    return [side] if isinstance(side, str) else side if isinstance(side, Sequence) else ()


def _ends(part: Mapping[str, Any], low: str, high: str) -> list[Any] | None:
    return None if part[low] is None else [part[low], part[high]]


def _would_take(values: Sequence[float], effect: float, together: int) -> dict[str, int | None]:
    """TAKES of the differences of an undecided claim; None where there are none, as of another, or
    it has no smallest effect."""
    if not values or effect <= 0:
        return dict.fromkeys(TAKES)
    deviations = statistics.stdev(values), *deviation_limits(values)
    numbers = [targets_needed(effect, sd, together) for sd in deviations]
    return dict(zip(TAKES, numbers, strict=True))


def _of_all(verdicts: Sequence[str]) -> str:
    """An intersection: what all of them are, `not held` where one is not (Berger, 1982: each at the
    level of the whole), else `undecided`."""
    if len({*verdicts}) == 1:
        return verdicts[0]
    return FAILS if FAILS in verdicts else UNDECIDED


def _has_leak(
    own: str, claim: Mapping[str, Any], level: str, tables: Tables, together: int
) -> bool:
    """Whether an attack of the claim's `reference` lies over `chance` on its targets, with its
    interval, simultaneous over the references, too; of a slope each at the largest row, as one
    that guesses everywhere loses nothing. A reference may be a column of another table with the
    same targets, `TABLE/COLUMN`. True for a claim about no attack, without reference."""
    names, slope = claim.get("reference", ()), claim.get("slope", False)
    sides = [claim.get("rows"), *([claim["over_rows"]] if "over_rows" in claim else [])]
    if slope:
        sides = [[max((cell.row for cell in tables[own][0]), key=float)]]
    over = []
    for name in names:
        table, _, column = name.rpartition("/")
        for rows in [None] if table else sides:
            one = {"better": column, "over": claim.get("chance", 0.5), "rows": rows}
            values = differences(one, level, *tables.get(table or own, ((), {})))
            ci = t_interval(values, together * (1 if slope else len(names) * len(sides)))
            over.append(ci is not None and ci[0] > 0)
    return not names or (all(over) if slope else any(over))


def _verdict(ci: Interval | None, effect: float, p_equivalent: float | None, *, test: bool) -> str:
    """`no test` on targets that leak to nobody; `equivalent` where two one-sided tests reject that
    the mean lies outside of the margin, else `answer`'s; `undecided` with fewer targets than
    planned."""
    if ci is None:
        return UNDECIDED
    if not test:
        return NO_TEST
    if p_equivalent is not None and p_equivalent <= 1 - LEVEL:
        return EQUIVALENT
    return answer(ci, effect)


def _p_equivalent(values: Sequence[float], margin: float | None) -> float | None:
    """The larger p of the two one-sided t tests that the mean is at most -margin, at least margin
    (Schuirmann, 1987); None without a margin."""
    if margin is None:
        return None
    sides = ((-margin, "greater"), (margin, "less"))
    return max(float(scipy.stats.ttest_1samp(values, at, alternative=a).pvalue) for at, a in sides)
