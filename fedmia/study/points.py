"""Numbers over the models of each point of a study, one a seed, and differences at equal seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import p_value, spread
from fedmia.study.rows import ComparisonRow, OverModels, SeedValues
from fedmia.table import KEY

if TYPE_CHECKING:
    import pandas as pd

K = TypeVar("K")
V = TypeVar("V")
BySeed = Mapping[int, float]
PLACE = [name for name in KEY if name not in ("run", "seed")]


# What is compared of two attacks -> metric of the table and false-positive rate that it is at.
MEASURES: Mapping[str, tuple[str, float | None]] = {
    "AUC": ("auc", None),
    "TPR at 1 % FPR": ("tpr_at_fpr", 0.01),
}
# What both attacks of a difference share: model, measure, and how many images they scored.
SAME = ["point", "seed", "measure", "n_members", "n_nonmembers"]


def over_points(table: pd.DataFrame) -> pd.DataFrame:
    """Each number of a study's table over the models of its point.

    Args:
        table: of a study, with the column `void`.

    Returns:
        Its place, and `n`, `mean`, `low` and `high` (95 % between models), `sd`, `least`,
        `greatest`, `void`: how many runs are left out, and why.
    """
    import pandas as pd

    points = []
    for place, rows in table.groupby(PLACE, sort=False, dropna=False):
        numbers = dict(vars(over_models(numbers_of(rows), -math.inf, math.inf)))
        del numbers["ci_simultaneous"]
        low, high = numbers.pop("ci") or (None, None)
        points.append({**dict(zip(PLACE, place, strict=True)), **numbers, "low": low, "high": high})
    return pd.DataFrame(points)


def numbers_of(rows: pd.DataFrame, column: str = "value") -> list[float | str]:
    """The numbers in a column; of rows of a void run, the reason in its place."""
    both = zip(rows[column], rows["void"], strict=True)
    return [void if isinstance(void, str) else float(value) for value, void in both]


def known(values: Iterable[float | str]) -> list[float]:
    """The values but those of void runs."""
    return [value for value in values if not isinstance(value, str)]


def over_models(values: Iterable[float | str], low: float = 0.0, high: float = 1.0) -> OverModels:
    """A number over the models of a point that count.

    Args:
        values: one a model; of a void run the reason.
        low: least value there may be.
        high: greatest value there may be.

    Returns:
        What `spread` gives; `void`: how many are left out, and why.
    """
    every = list(values)
    reasons = Counter(value for value in every if isinstance(value, str))
    why = f"{reasons.total()} of {len(every)} void: {', '.join(sorted(reasons))}"
    numbers = spread(known(every), low, high)
    return OverModels(**numbers, ci_simultaneous=None, void=why if reasons else "")


def comparisons(
    select: Callable[..., pd.DataFrame], baseline: str, attacks: Iterable[str] | None = None
) -> list[ComparisonRow]:
    """Every other attack at every point, by each measure; Holm's p holds for all rows.

    Both attacks of a difference scored one model on the same images: an attack that scored more or
    fewer in a run is left out there. Differences are paired by seed.

    Args:
        select: of the study that has the scores.
        baseline: attack that the others are compared with.
        attacks: their names; None: all.

    Returns:
        A row a point, attack and measure: the differences by seed and over models.
    """
    import pandas as pd

    measured = MEASURES.items()
    parts = [select(m, target_fpr=fpr).assign(measure=n) for n, (m, fpr) in measured]
    scores = pd.concat(parts).sort_index()  # as the table has them
    base = scores[scores["attack"] == baseline][[*SAME, "value"]]
    others = scores[scores["attack"].isin(list(attacks or scores["attack"].unique()))]
    both = others[others["attack"] != baseline].merge(base, on=SAME, suffixes=("", "_baseline"))
    both["difference"] = (both["value"] - both["value_baseline"]).round(6)
    rows = []
    for (point, attack, measure), group in both.groupby(["point", "attack", "measure"], sort=False):
        by_seed = dict(zip(group["seed"], numbers_of(group, "difference"), strict=True))
        rows.append(compare(point, attack, baseline, measure, by_seed))
    return with_holm(rows)


def compare(
    point: str, attack: str, other: str | None, measure: str, by_seed: SeedValues, **sets: Any
) -> ComparisonRow:
    """A comparison at a point, with the two-sided t test over models that the mean difference is 0.

    Args:
        point: of the study.
        attack: that is compared.
        other: what it is compared with; None: nothing.
        measure: of which the differences are.
        by_seed: the difference of each model.
        sets: `judged`, `size` and `auc`, where sets of images are scored.

    Returns:
        The row, without Holm's correction.
    """
    values = list(by_seed.values())
    return ComparisonRow(
        point=point, attack=attack, other=other, measure=measure, by_seed=by_seed,
        difference=over_models(values, -1.0), p=p_value(known(values)), p_holm=None,
        **{"judged": None, "size": None, "auc": None} | sets,
    )  # fmt: skip


def change(ours: SeedValues, theirs: SeedValues) -> OverModels:
    """Over seeds that both have, the first less the second."""
    return over_models(paired_differences(ours, theirs), -1.0)


def paired_differences(ours: SeedValues, theirs: SeedValues) -> list[float | str]:
    """Differences by seed; rounded, so that equal ones are equal.

    Args:
        ours: by seed.
        theirs: by seed.

    Returns:
        For each seed that both have the first less the second, or why one of them is void.
    """
    pairs = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    return [
        one if isinstance(one, str) else other if isinstance(other, str) else round(one - other, 6)
        for one, other in pairs
    ]


def with_holm(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """The rows with p-values that are corrected for all of them."""
    adjusted = holm([row.p for row in rows])
    return [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]


def largest_epsilon(stated: Sequence[Any]) -> Any:
    """The largest of what clients or models promise; None where one of them states no epsilon, or
    where units or deltas differ.

    Args:
        stated: each with its `value`, `unit` and `delta`, or None.
    """
    known = [e for e in stated if e is not None]
    alike = {(e.get("unit"), e.get("delta")) for e in known}
    if len(alike) != 1 or len(known) < len(stated):
        return None
    return max(known, key=lambda e: math.inf if e["value"] is None else e["value"])


def group_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Key -> the values that share it, in order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
