"""Rows and points of a trade-off: each defence at each strength over its models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedmia.config.tradeoff import DefensePoint, Tradeoff
from fedmia.records.defence_rows import EpsilonRow
from fedmia.records.rows import Report
from fedmia.report.verdict import LEAKS
from fedmia.statistics.intervals import LEVEL
from fedmia.statistics.spread import clip_interval, spread, t_interval
from fedmia.study import formats
from fedmia.study.engine import Study
from fedmia.study.points import BySeed, change

COLUMNS = (
    "defense", "strength", "epsilon", "unit", "standing", "attack", "auc", "auc_ci", "tpr", "knn",
    "knn_untrained", "linear", "seconds", "seed", "note",
)  # fmt: skip
UNKNOWN = dict.fromkeys(COLUMNS)  # a row of which nothing is known
GROUPS = ("defended", "undefended")  # as reports name them


def rows(tradeoff: Tradeoff, study: Study) -> list[Any]:
    """One row an attack and run, by point, then seed."""
    reports = study.reports()
    scoring = {row["name"] for report in reports.values() for row in report["attacks"]}
    listed: list[Any] = []
    for i, cell in enumerate(study.by_point()):
        trade = tradeoff.trades[i // tradeoff.seeds]
        place = {"defense": trade.defense, "strength": trade.strength, "seed": cell.seed}
        if cell.key in reports:
            own = _finished(reports[cell.key])
        else:  # of the attacks that score images elsewhere
            state = study.state(cell)
            note = ": ".join(filter(None, (state["state"], state["reason"])))
            names = [n for n in cell.first.attacks if n in scoring] or cell.first.attacks
            own = ({"attack": name, "note": note} for name in names)
        listed += [UNKNOWN | place | row for row in own]
    return listed


def _finished(report: Report) -> Iterator[dict[str, Any]]:
    """What the rows of one run say."""
    epsilon: Any = spent(report) or {}
    useful = report["utility"]
    both = {
        "epsilon": epsilon.get("value"),
        "unit": epsilon.get("unit"),
        "standing": epsilon.get("standing"),
        "knn": useful["knn"],
        "linear": useful["linear"],
        "knn_untrained": useful["untrained"]["knn"],
        "seconds": report["timing"].get("total_s"),
    }
    for row in report["attacks"]:
        # An active attack reads the models of the attacked rounds, and is seen beside their use.
        use: Any = (row["under_attack"] and useful.get("after_attack")) or useful
        yield both | {
            "attack": row["name"], "auc": row["auc"], "auc_ci": row["auc_ci"],
            "tpr": row["tpr_at_fpr"]["0.01"], "knn": use["knn"], "linear": use["linear"],
        }  # fmt: skip
    for lost in report["not_run"]:
        why = lost["reason"]
        note = why if why.startswith("failed") else f"not run: {why}"
        yield both | {"attack": lost["attack"], "note": note}


def spent(report: Report) -> EpsilonRow | None:
    """The largest epsilon of a defended client, or what the server's aggregation promises where no
    client defends itself; None where one states none, or where units or deltas differ."""
    stated = [c["defence"]["epsilon"] for c in report["clients"] if c["defence"] is not None]
    server: Any = report.get("aggregation")
    stated = stated or ([server["epsilon"]] if server else [])
    known = [e for e in stated if e is not None]
    alike = {(e.get("unit"), e.get("delta")) for e in known}
    if len(alike) != 1 or len(known) < len(stated):
        return None
    return max(known, key=lambda e: float("inf") if e["value"] is None else e["value"])


def points(
    trades: Sequence[DefensePoint],
    swept: Sequence[formats.PointRow],
    by_point: Sequence[Sequence[Any]],
) -> list[Any]:
    """One row a point, with intervals of all attacks at all points that hold together.

    Args:
        trades: the points, the undefended one first.
        swept: the same points of the sweep.
        by_point: the rows of each.
    """
    listed = [_point(*one) for one in zip(trades, swept, by_point, strict=True)]
    for point, rows_of_point in zip(listed, by_point, strict=True):
        for row in point["attacks"]:
            aucs = list(values(rows_of_point, "auc", row["name"]).values())
            row["auc_ci_simultaneous"] = clip_interval(t_interval(aucs, intervals(listed)))
    bare, best = by_point[0], listed[0]["best"]
    for point, rows_of_point in zip(listed[1:], by_point[1:], strict=True):
        point["auc_change"] = change(leaks(point, rows_of_point), values(bare, "auc", best))
        point["knn_change"] = change(
            values(rows_of_point, "knn", point["best"]), values(bare, "knn", best)
        )
    for point in listed:
        point["front"] = not any(beats(other, point) for other in listed)
    return listed


def intervals(listed: Iterable[Any]) -> int:
    """How many AUCs have an interval between models."""
    return sum(row["auc"]["ci"] is not None for point in listed for row in point["attacks"])


def family(listed: Iterable[Any]) -> Any:
    """The intervals that hold together."""
    method = "Bonferroni over Student's intervals between models"
    return {"level": LEVEL, "intervals": intervals(listed), "method": method}


def values(rows: Iterable[Any], measure: str, attack: str | None = None) -> BySeed:
    """Seed -> a number of the rows of one point, where it is known; of one attack, or of any."""
    return {
        row["seed"]: row[measure]
        for row in rows
        if row[measure] is not None and attack in (None, row["attack"])
    }


def leaks(point: Any, rows: Iterable[Any]) -> BySeed:
    """Seed -> AUC of the point's best attack."""
    return values(rows, "auc", point["best"]) if point["best"] else {}


def best_of(point: Any) -> Any:
    """The attack that leaks most at a point, None where none has an AUC."""
    return attack_of(point, point["best"])


def attack_of(point: Any, name: str | None) -> Any:
    """An attack at a point, None where it is not there."""
    return next((row for row in point["attacks"] if row["name"] == name), None)


def place(point: Any) -> tuple[float | None, float | None]:
    """Mean kNN, and mean AUC of the best attack."""
    best = best_of(point)
    return point["knn"]["mean"], best["auc"]["mean"] if best else None


def at_least_half(auc: float) -> float:
    """An AUC under 0.5 counts as 0.5: guessing worse than chance is no less of a leak."""
    return max(auc, 0.5)


def leaks_measurably(point: Any) -> bool:
    """Whether the best attack's simultaneous interval lies over 0.5; where models of one seed give
    no interval, whether the verdict of each run is a leak."""
    best = best_of(point)
    if best is not None and (ci := best["auc_ci_simultaneous"]) is not None:
        return ci[0] > 0.5
    return bool(point["verdicts"]) and set(point["verdicts"]) <= set(LEAKS)


def beats(other: Any, one: Any) -> bool:
    """Whether `other` is at least as good in both and better in one; a point without numbers is
    beaten by itself."""
    (knn, auc), (worse_knn, worse_auc) = place(other), place(one)
    if worse_auc is None or worse_knn is None:
        return True
    if auc is None or knn is None:
        return False
    auc, worse_auc = at_least_half(auc), at_least_half(worse_auc)
    return auc <= worse_auc and knn >= worse_knn and (auc, knn) != (worse_auc, worse_knn)


def groups(reports: Mapping[int, Report], attack: str | None) -> Any:
    """What clients that defend themselves leak and those that do not, over the models of one point;
    None where one of them has no AUC in any.

    Args:
        reports: by seed.
    """
    ours, theirs = (_aucs(reports, group, attack) for group in GROUPS)
    if not ours or not theirs:
        return None
    return {
        "defended": spread(ours.values()),
        "undefended": spread(theirs.values()),
        "difference": change(ours, theirs),
    }


def _aucs(reports: Mapping[int, Report], group: str, attack: str | None) -> BySeed:
    """Seed -> AUC of an attack on the members of one group."""
    return {
        seed: row["auc"]
        for seed, report in reports.items()
        if report["defended"] is not None
        for group_row in report["defended"]["groups"]
        for row in group_row["leakage"]
        if group_row["group"] == group and row["attack"] == attack
    }


def _point(trade: DefensePoint, swept: formats.PointRow, rows: Sequence[Any]) -> Any:
    attacks = [_attack(rows, name) for name in dict.fromkeys(row["attack"] for row in rows)]
    known = [row for row in attacks if row["auc"]["mean"] is not None]
    best = max(known, key=lambda row: row["auc"]["mean"] or 0.0, default=None)
    name, (epsilon, standing, unit) = best["name"] if best else None, largest(rows)
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
        "knn": spread(values(rows, "knn", name).values()),
        "linear": spread(values(rows, "linear", name).values()),
        "auc_change": None,
        "knn_change": None,
        "knn_over_untrained": change(values(rows, "knn", name), values(rows, "knn_untrained")),
        "groups": None,
        "front": False,
    }


def _attack(rows: Sequence[Any], name: str) -> Any:
    return {
        "name": name,
        "auc": spread(values(rows, "auc", name).values()),
        "auc_ci_simultaneous": None,
        "tpr": spread(values(rows, "tpr", name).values()),
    }


def largest(rows: Iterable[Any]) -> tuple[float | None, str | None, str | None]:
    """The largest epsilon of a model, its standing and its unit; none where a model states none."""
    known = [row for row in rows if row["knn"] is not None]
    stated = [(row["epsilon"], row["standing"], row["unit"]) for row in known]
    if not stated or any(standing is None for _, standing, _ in stated):
        return None, None, None
    return max(stated, key=lambda one: float("inf") if one[0] is None else one[0])
