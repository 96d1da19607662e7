"""Numbers over the models of each point of a study, one a seed, and differences at equal seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import Spread, p_value, spread
from fedmia.table import KEY

if TYPE_CHECKING:
    import pandas as pd

BySeed = Mapping[int, float]
PLACE = [name for name in KEY if name not in ("run", "seed")]


class TestedDifference(TypedDict):
    """A difference over the models of one point.

    Attributes:
        difference: over models.
        p: two-sided t test over models of a mean of 0.
        p_holm: the same, Holm's for all rows that hold together.
    """

    difference: Spread
    p: float | None
    p_holm: float | None


def over_models(table: pd.DataFrame) -> pd.DataFrame:
    """Each number of a study's table over the models of its point.

    Args:
        table: of a study.

    Returns:
        Its place, and `n`, `mean`, `low` and `high` (95 % between models), `sd`, `least`,
        `greatest`.
    """
    import pandas as pd

    points = []
    for place, values in table.groupby(PLACE, sort=False, dropna=False)["value"]:
        numbers: dict[str, Any] = {**spread(values, -math.inf, math.inf)}
        low, high = numbers.pop("ci") or (None, None)
        points.append({**dict(zip(PLACE, place, strict=True)), **numbers, "low": low, "high": high})
    return pd.DataFrame(points)


def change(ours: BySeed, theirs: BySeed) -> Spread:
    """Over seeds that both have, the first less the second."""
    return spread(paired_differences(ours, theirs), -1.0)


def paired_differences(ours: BySeed, theirs: BySeed) -> list[float]:
    """By seed that both have, the first less the second; rounded, so that equal ones are equal."""
    return [round(ours[seed] - theirs[seed], 6) for seed in sorted(ours.keys() & theirs.keys())]


def test_difference(differences: Iterable[float]) -> TestedDifference:
    """Differences over models, and whether their mean is 0."""
    known = list(differences)
    return {"difference": spread(known, -1.0), "p": p_value(known), "p_holm": None}


def fill_holm(rows: Sequence[Any]) -> None:
    """Fill in `p_holm` of rows whose `p` shall hold together."""
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = p


def group_by_key(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Key -> the values that share it, in order."""
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
