"""The models of each point of the grid together, and each point beside its neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedmia.config.sweep import tree_key
from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import Spread, p_value, spread
from fedmia.study import formats

PROBES = ("knn", "linear", "knn_after_attack")
MEASURES = ("auc", *PROBES)
BySeed = Mapping[int, float]


def point_rows(cells: Sequence[formats.CellRow]) -> list[formats.PointRow]:
    """One row a point of the grid, with the p-values that hold together for all of them."""
    points = [_point(cells_of_point) for cells_of_point in group_by_point(cells).values()]
    fill_holm([row for point in points for row in (*point["pairs"], *point["sets"])])
    return points


def fill_holm(rows: Sequence[Any]) -> None:
    """Fill in `p_holm` of rows whose `p` shall hold together."""
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = p


def differences(cells: Sequence[formats.CellRow]) -> Iterator[formats.DifferenceRow]:
    """Every two points whose grids differ in one option, compared seed by seed."""
    for one, other in itertools.combinations(group_by_point(cells).values(), 2):
        a, b = one[0]["grid"], other[0]["grid"]
        if a.keys() != b.keys() or len(paths := [path for path in a if a[path] != b[path]]) != 1:
            continue
        ours, theirs = _measures(one), _measures(other)
        for measure, attack in sorted(ours, key=lambda name: MEASURES.index(name[0])):
            less = change(theirs.get((measure, attack), {}), ours[measure, attack])
            if less["n"]:
                yield {
                    "option": paths[0],
                    "first": a[paths[0]],
                    "second": b[paths[0]],
                    "others": {path: a[path] for path in a if path not in paths},
                    "measure": measure,
                    "attack": attack,
                    "difference": less,
                }


def group_by_point(cells: Sequence[formats.CellRow]) -> dict[str, list[formats.CellRow]]:
    """The runs of each point of the grid, in order."""
    return group_by_key((tree_key(cell["grid"]), cell) for cell in cells)


def change(ours: BySeed, theirs: BySeed) -> Spread:
    """Over seeds that both have, the first less the second."""
    return spread(paired_differences(ours, theirs), -1.0)


def paired_differences(ours: BySeed, theirs: BySeed) -> list[float]:
    """By seed that both have, the first less the second; rounded, so that equal ones are equal."""
    return [round(ours[seed] - theirs[seed], 6) for seed in sorted(ours.keys() & theirs.keys())]


def test_difference(differences: Iterable[float | None]) -> formats.TestedDifference:
    """Differences over models, and whether their mean is 0."""
    known = [value for value in differences if value is not None]
    return {"difference": spread(known, -1.0), "p": p_value(known), "p_holm": None}


def count_codes(codes: Sequence[str]) -> dict[str, int]:
    """How many models have each verdict."""
    return {code: codes.count(code) for code in sorted(set(codes))}


def _point(cells: Sequence[formats.CellRow]) -> formats.PointRow:
    """The models of one point, one a seed."""
    results = [cell["results"] for cell in cells if cell["results"] is not None]
    return {
        "grid": cells[0]["grid"],
        "finished": len(results),
        "failed": sum(cell["state"] == "failed" for cell in cells),
        "verdicts": count_codes([one["verdict_code"] for one in results]),
        "attacks": _attacks(cells),
        "pairs": _pairs(results),
        "sets": _sets(results),
        **{name: _spread_of(results, name) for name in PROBES},  # type: ignore[typeddict-item]
    }


def _attacks(cells: Sequence[formats.CellRow]) -> list[formats.AttackSpread]:
    rows = [
        {**row, "seed": str(cell["seed"])}
        for cell in cells if cell["results"] for row in cell["results"]["attacks"]
    ]  # fmt: skip
    return [
        {
            "name": name,
            "auc": _spread_of(rows_of_attack, "auc"),
            "tpr_at_1_percent_fpr": _spread_of(rows_of_attack, "tpr_at_1_percent_fpr"),
            "controls": {
                label: spread(row["controls"].get(label) for row in rows_of_attack)
                for label in rows_of_attack[0]["controls"]
            },
            "choices": {row["seed"]: row["choices"] for row in rows_of_attack if row["choices"]},
        }
        for (name,), rows_of_attack in _group_rows(rows, "name").items()
    ]


def _pairs(results: Sequence[formats.CellResults]) -> list[formats.PairSpread]:
    rows = _group_rows((row for one in results for row in one["pairs"]), "attack", "control")
    return [
        {
            "attack": attack,
            "control": control,
            **test_difference(row["difference"] for row in rows_of_pair),
        }
        for (attack, control), rows_of_pair in rows.items()
    ]


def _sets(results: Sequence[formats.CellResults]) -> list[formats.SetSpread]:
    rows = _group_rows((row for one in results for row in one["sets"]), "attack", "judged", "size")
    spreads: list[formats.SetSpread] = []
    for (attack, how, size), rows_of_set in rows.items():
        controls = [row["control"] for row in rows_of_set if row["control"]]
        spreads.append({
            "attack": attack, "judged": how, "size": size, "auc": _spread_of(rows_of_set, "auc"),
            "control": controls[0]["name"] if controls else None,
            **test_difference(control["difference"] for control in controls),
        })  # fmt: skip
    return spreads


def _measures(cells: Sequence[formats.CellRow]) -> dict[tuple[str, str | None], dict[int, float]]:
    """What points are compared by, and of which attack -> seed -> value, where it is known."""
    by_seed: dict[tuple[str, str | None], dict[int, float]] = {}
    for cell in cells:
        if (results := cell["results"]) is None:
            continue
        values: dict[tuple[str, str | None], Any] = {
            ("auc", row["name"]): row["auc"] for row in results["attacks"]
        }
        values |= {(name, None): results[name] for name in PROBES}  # type: ignore[literal-required]
        for measure_and_attack, value in values.items():
            if value is not None:
                by_seed.setdefault(measure_and_attack, {})[cell["seed"]] = value
    return by_seed


def _spread_of(rows: Iterable[Any], key: str) -> Spread:
    """One number of several rows, over models."""
    return spread(row[key] for row in rows)


def _group_rows(rows: Iterable[Any], *keys: str) -> dict[tuple[Any, ...], list[Any]]:
    """The rows that share these keys, in order."""
    return group_by_key((tuple(row[key] for key in keys), row) for row in rows)


def group_by_key(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Key -> the values that share it, in order."""
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
