"""The models of each point of the grid together, and each point beside its neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from fedmia.config.sweep import key_of
from fedmia.report.rows import Json, SetRow
from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import p_value, spread
from fedmia.sweeping.rows import (
    AttackSpread,
    CellAttack,
    CellPair,
    CellResults,
    CellRow,
    DifferenceRow,
    PairSpread,
    PointRow,
    SetSpread,
)

Value = Callable[[CellResults], float | None]


def point_rows(cells: Sequence[CellRow]) -> list[PointRow]:
    """One row a point of the grid, with the p-values that hold together for all of them."""
    points = [_point(held) for held in grouped(cells).values()]
    rows = [row for point in points for row in (*point["pairs"], *point["sets"])]
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = p
    return points


def differences(cells: Sequence[CellRow]) -> Iterator[DifferenceRow]:
    """Every two points whose grids differ in one option, compared seed by seed."""
    for one, other in itertools.combinations(grouped(cells).values(), 2):
        a, b = one[0]["grid"], other[0]["grid"]
        if a.keys() != b.keys() or len(apart := [path for path in a if a[path] != b[path]]) != 1:
            continue
        seeds = {c["seed"]: c["results"] for c in one if c["results"]}
        both = [(seeds[c["seed"]], c["results"]) for c in other
                if c["results"] and c["seed"] in seeds]  # fmt: skip
        for measure, attack, value in _measures([first for first, _ in both]):
            held = [(value(first), value(second)) for first, second in both]
            found = [s - f for f, s in held if f is not None and s is not None]
            if found:
                yield {
                    "option": apart[0],
                    "first": a[apart[0]],
                    "second": b[apart[0]],
                    "others": {path: a[path] for path in a if path != apart[0]},
                    "measure": measure,
                    "attack": attack,
                    "difference": spread((round(v, 6) for v in found), -1.0),
                }


def grouped(cells: Sequence[CellRow]) -> dict[str, list[CellRow]]:
    """The runs of each point of the grid, in order."""
    found: dict[str, list[CellRow]] = {}
    for cell in cells:
        found.setdefault(key_of(cell["grid"]), []).append(cell)
    return found


def _point(cells: Sequence[CellRow]) -> PointRow:
    """The models of one point, one a seed."""
    found = [cell["results"] for cell in cells if cell["results"] is not None]
    codes = [results["verdict_code"] for results in found]
    return {
        "grid": cells[0]["grid"],
        "finished": len(found),
        "failed": sum(cell["state"] == "failed" for cell in cells),
        "verdicts": {code: codes.count(code) for code in sorted(set(codes))},
        "attacks": _attacks(cells),
        "pairs": _pairs(found),
        "sets": _sets(found),
        "knn": spread(results["knn"] for results in found),
        "linear": spread(results["linear"] for results in found),
        "knn_after_attack": spread(results["knn_after_attack"] for results in found),
    }


def _attacks(cells: Sequence[CellRow]) -> list[AttackSpread]:
    rows: dict[str, list[CellAttack]] = {}
    choices: dict[str, dict[str, Json]] = {}
    for cell in cells:
        for row in cell["results"]["attacks"] if cell["results"] else ():
            rows.setdefault(row["name"], []).append(row)
            if row["choices"]:
                choices.setdefault(row["name"], {})[str(cell["seed"])] = row["choices"]
    return [
        {
            "name": name,
            "auc": spread(row["auc"] for row in held),
            "tpr_at_1_percent_fpr": spread(row["tpr_at_1_percent_fpr"] for row in held),
            "controls": {
                label: spread(row["controls"].get(label) for row in held)
                for label in held[0]["controls"]
            },
            "choices": choices.get(name, {}),
        }
        for name, held in rows.items()
    ]


def _pairs(found: Sequence[CellResults]) -> list[PairSpread]:
    rows: dict[tuple[str, str], list[CellPair]] = {}
    for row in (row for results in found for row in results["pairs"]):
        rows.setdefault((row["attack"], row["control"]), []).append(row)
    return [
        {
            "attack": attack,
            "control": control,
            "difference": spread((row["difference"] for row in held), -1.0),
            "p": p_value([r["difference"] for r in held if r["difference"] is not None]),
            "p_holm": None,
        }
        for (attack, control), held in rows.items()
    ]


def _sets(found: Sequence[CellResults]) -> list[SetSpread]:
    rows: dict[tuple[str, str, int], list[SetRow]] = {}
    for row in (row for results in found for row in results["sets"]):
        rows.setdefault((row["attack"], row["judged"], row["size"]), []).append(row)
    made: list[SetSpread] = []
    for (attack, judged, size), held in rows.items():
        controls = [row["control"] for row in held if row["control"]]
        made.append({
            "attack": attack, "judged": judged, "size": size,
            "auc": spread(row["auc"] for row in held),
            "control": controls[0]["name"] if controls else None,
            "difference": spread((control["difference"] for control in controls), -1.0),
            "p": p_value([control["difference"] for control in controls]),
            "p_holm": None,
        })  # fmt: skip
    return made


def _measures(found: Sequence[CellResults]) -> Iterator[tuple[str, str | None, Value]]:
    """What two points are compared by: the AUC of each attack, and the probes."""
    for name in dict.fromkeys(row["name"] for results in found for row in results["attacks"]):
        yield (
            "auc",
            name,
            lambda results, name=name: next(  # type: ignore[misc]
                (row["auc"] for row in results["attacks"] if row["name"] == name), None
            ),
        )
    yield "knn", None, lambda results: results["knn"]
    yield "linear", None, lambda results: results["linear"]
    yield "knn_after_attack", None, lambda results: results["knn_after_attack"]
