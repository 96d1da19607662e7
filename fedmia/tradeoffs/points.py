"""The points of a trade-off: each defence at each strength over its models, and their front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedmia.config.tradeoff import Trade
from fedmia.statistics.intervals import LEVEL
from fedmia.statistics.spread import spread, t_interval, within
from fedmia.sweeping.rows import PointRow, Spread
from fedmia.tradeoffs.rows import TradeAttack, TradeFamily, TradePoint, TradeRow

BySeed = Mapping[int, float]


def points(
    trades: Sequence[Trade], swept: Sequence[PointRow], by_point: Sequence[Sequence[TradeRow]]
) -> list[TradePoint]:
    """One row a point, with intervals of all attacks at all points that hold together.

    Args:
        trades: the points, the undefended one first.
        swept: the same points of the sweep.
        by_point: the rows of each.
    """
    found = [_point(*one) for one in zip(trades, swept, by_point, strict=True)]
    for point, held in zip(found, by_point, strict=True):
        for row in point["attacks"]:
            aucs = list(values(held, "auc", row["name"]).values())
            row["auc_ci_simultaneous"] = within(t_interval(aucs, intervals(found)))
    bare, best = by_point[0], found[0]["best"]
    for point, held in zip(found[1:], by_point[1:], strict=True):
        point["auc_change"] = change(leaks(point, held), values(bare, "auc", best))
        point["knn_change"] = change(values(held, "knn", point["best"]), values(bare, "knn", best))
    for point in found:
        point["front"] = not any(_beats(other, point) for other in found)
    return found


def intervals(found: Iterable[TradePoint]) -> int:
    """How many AUCs have an interval between models."""
    return sum(row["auc"]["ci"] is not None for point in found for row in point["attacks"])


def family(found: Iterable[TradePoint]) -> TradeFamily:
    """The intervals that hold together."""
    method = "Bonferroni over Student's intervals between models"
    return {"level": LEVEL, "intervals": intervals(found), "method": method}


def values(held: Iterable[TradeRow], measure: str, attack: str | None = None) -> BySeed:
    """Seed -> a number of the rows of one point, where it is known; of one attack, or of any."""
    return {
        row["seed"]: row[measure]  # type: ignore[literal-required]
        for row in held
        if row[measure] is not None and attack in (None, row["attack"])  # type: ignore[literal-required]
    }


def leaks(point: TradePoint, held: Iterable[TradeRow]) -> BySeed:
    """Seed -> AUC of the point's best attack."""
    return values(held, "auc", point["best"]) if point["best"] else {}


def change(ours: BySeed, theirs: BySeed) -> Spread:
    """Over seeds that both have, the first less the second."""
    return spread(apart(ours, theirs), -1.0)


def apart(ours: BySeed, theirs: BySeed) -> list[float]:
    """By seed that both have, the first less the second; rounded, so that equal ones are equal."""
    return [round(ours[seed] - theirs[seed], 6) for seed in sorted(ours.keys() & theirs.keys())]


def _point(trade: Trade, swept: PointRow, held: Sequence[TradeRow]) -> TradePoint:
    attacks = [_attack(held, name) for name in dict.fromkeys(row["attack"] for row in held)]
    known = [row for row in attacks if row["auc"]["mean"] is not None]
    best = max(known, key=lambda row: row["auc"]["mean"] or 0.0, default=None)
    name, (epsilon, standing, unit) = best["name"] if best else None, _spent(held)
    return {
        "label": trade.label,
        "defense": trade.defense,
        "option": trade.option or None,
        "strength": trade.strength,
        "finished": swept["finished"],
        "failed": swept["failed"],
        "verdicts": swept["verdicts"],
        "epsilon": epsilon,
        "unit": unit,
        "standing": standing,
        "attacks": attacks,
        "best": name,
        "knn": spread(values(held, "knn", name).values()),
        "linear": spread(values(held, "linear", name).values()),
        "auc_change": None,
        "knn_change": None,
        "knn_over_untrained": change(values(held, "knn", name), values(held, "knn_untrained")),
        "groups": None,
        "front": False,
    }


def _attack(held: Sequence[TradeRow], name: str) -> TradeAttack:
    return {
        "name": name,
        "auc": spread(values(held, "auc", name).values()),
        "auc_ci_simultaneous": None,
        "tpr": spread(values(held, "tpr", name).values()),
    }


def _spent(held: Iterable[TradeRow]) -> tuple[float | None, str | None, str | None]:
    """The largest epsilon of a model, its standing and its unit; none where a model states none."""
    rows = [row for row in held if row["knn"] is not None]
    stated = [(row["epsilon"], row["standing"], row["unit"]) for row in rows]
    if not stated or any(standing is None for _, standing, _ in stated):
        return None, None, None
    return max(stated, key=lambda one: float("inf") if one[0] is None else one[0])


def _beats(other: TradePoint, one: TradePoint) -> bool:
    """Whether `other` is at least as good in both and better in one; a point without numbers is
    beaten by itself."""
    (auc, knn), (worse_auc, worse_knn) = _place(other), _place(one)
    if worse_auc is None or worse_knn is None:
        return True
    if auc is None or knn is None:
        return False
    return auc <= worse_auc and knn >= worse_knn and (auc, knn) != (worse_auc, worse_knn)


def _place(point: TradePoint) -> tuple[float | None, float | None]:
    """Mean AUC of the best attack, and mean kNN."""
    best = next((row for row in point["attacks"] if row["name"] == point["best"]), None)
    return best["auc"]["mean"] if best else None, point["knn"]["mean"]
