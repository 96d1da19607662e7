"""Each attack paired with itself, and kNN with that of stopping early, at equal seeds.

The table of a trade-off compares best attacks, which may be two different ones. Here `internal`
under a defence stands beside `internal` without it. From the rows of the committed trade-offs:

    python benchmarks/paired_defences.py [--out benchmarks/results/defences/paired.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmia.statistics.pvalues import holm
from fedmia.statistics.spread import p_value, spread

FOLDER = Path(__file__).parent / "results" / "defences"
STOPPED = "early-stopping after=5"


def values(rows: Sequence[Any], point: Any, measure: str, attack: str) -> dict[int, float]:
    """Seed -> AUC or kNN of one attack's rows at a point."""
    own = (point["defense"], point["strength"], attack)
    return {r["seed"]: r[measure] for r in rows
            if (r["defense"], r["strength"], r["attack"]) == own}  # fmt: skip


def compare_points(report: Any) -> list[dict[str, Any]]:
    """A row for each point and attack; p by Holm over all AUCs of the trade-off."""
    points, rows = report["points"], report["rows"]
    stopped = next((p for p in points if p["label"] == STOPPED), None)
    compared_rows = []
    for point in points[1:]:
        for attack in (a["name"] for a in point["attacks"]):
            ours, bare = (values(rows, p, "auc", attack) for p in (point, points[0]))
            apart = [ours[s] - bare[s] for s in sorted(ours)]
            row = {"label": point["label"], "attack": attack, "auc": spread(apart, -1.0),
                   "p": p_value(apart), "knn_over_stopping": None}  # fmt: skip
            if stopped is not None:
                ours, other = (values(rows, p, "knn", attack) for p in (point, stopped))
                apart = [ours[s] - other[s] for s in sorted(ours)]
                row["knn_over_stopping"] = spread(apart, -1.0)
            compared_rows.append(row)
    for row, adjusted in zip(compared_rows, holm([r["p"] for r in compared_rows]), strict=True):
        row["p_holm"] = adjusted
    return compared_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER / "paired.json")
    out = parser.parse_args().out
    files = {name: json.loads((FOLDER / f"{name}.json").read_text())
             for name in ("tradeoff", "cifar10")}  # fmt: skip
    comparison = {name: compare_points(report) for name, report in files.items()}
    out.write_text(json.dumps(comparison, indent=1) + "\n", encoding="utf-8")
    for name, rows in comparison.items():
        for row in rows:
            ci = row["auc"]["ci"]
            print(name, row["label"], row["attack"], round(row["auc"]["mean"], 3), ci,
                  round(row["p_holm"], 4), sep=" | ")  # fmt: skip


if __name__ == "__main__":
    main()
