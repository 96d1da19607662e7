"""Numbers over the models of each point of a study, one a seed, and differences at equal seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import p_value, spread
from fedmia.table import KEY

if TYPE_CHECKING:
    import pandas as pd

BySeed = Mapping[int, float]
SeedValues = Mapping[int, float | str]  # a number; of a void run the reason
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
        numbers: dict[str, Any] = over_models(numbers_of(rows), -math.inf, math.inf)
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


def over_models(
    values: Iterable[float | str], low: float = 0.0, high: float = 1.0
) -> dict[str, Any]:
    """A number over the models of a point that count.

    Args:
        values: one a model; of a void run the reason.
        low: least value there may be.
        high: greatest value there may be.

    Returns:
        What `spread` gives, and `void`: how many are left out, and why; empty where none is.
    """
    every = list(values)
    reasons = Counter(value for value in every if isinstance(value, str))
    why = f"{reasons.total()} of {len(every)} void: {', '.join(sorted(reasons))}"
    return {**spread(known(every), low, high), "void": why if reasons else ""}


def comparisons(
    select: Callable[..., pd.DataFrame], baseline: str, attacks: Iterable[str] | None = None
) -> list[dict[str, Any]]:
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
    rows: list[dict[str, Any]] = []
    for (point, attack, measure), group in both.groupby(["point", "attack", "measure"], sort=False):
        by_seed = dict(zip(group["seed"], numbers_of(group, "difference"), strict=True))
        place = {"point": point, "attack": attack, "measure": measure}
        rows.append({**place, "by_seed": by_seed, **test_difference(by_seed.values())})
    fill_holm(rows)
    return rows


def change(ours: SeedValues, theirs: SeedValues) -> dict[str, Any]:
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


def test_difference(differences: Iterable[float | str]) -> dict[str, Any]:
    """Differences over models, `p` of the two-sided t test over models that their mean is 0, and
    room for `p_holm`, Holm's for all rows that hold together."""
    every = list(differences)
    return {"difference": over_models(every, -1.0), "p": p_value(known(every)), "p_holm": None}


def fill_holm(rows: Sequence[Any]) -> None:
    """Fill in `p_holm` of rows whose `p` shall hold together."""
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = p


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


def group_by_key(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Key -> the values that share it, in order."""
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
