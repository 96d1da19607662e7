"""What more shadows and more views give: AUC, TPR and seconds of attacks on one target of a bench.

python research/measurements/bench_curves.py encoders-v2 moco-weak --data parquet:FILE ..
    --cache FOLDER [--out research/results/bench_curves.json]

Attacks with shadows have 1, 2, 4, .. 64 of the target's recipe, of which the first ones are those
of fewer; their training is not in the seconds, and `core_hours` has it. Attacks on views have 2 to
64 of each image. All numbers are of one target: their intervals are of its images, each by itself.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import process_time
from typing import Any

import torch
from _results import write_results

from fedmia.bench.board import TargetRow
from fedmia.bench.command import by_rate
from fedmia.bench.entries import describe_machine
from fedmia.bench.scoring import BOTH, Entrant, open_target, score_target
from fedmia.bench.targets import Target, bench_folder, find_images, read_targets
from fedmia.data.images import ByteArray

RESULTS = Path(__file__).parents[1] / "results" / "bench_curves.json"
SHADOWS = {name: (1, 2, 4, 8, 16, 32, 64) for name in ("lira", "rmia", "bavaria")}
VIEWS = {name: (2, 4, 8, 16, 32, 64) for name in ("similarity", "grad-norm", "encodermi-v")}
KNOWN = {"encodermi-v": {"fit_on": "known"}}


def measure(entrant: Entrant, target: Target, images: dict[str, ByteArray], cache: Path) -> Any:
    """A point of a curve; None where the attack cannot be run so, as BaVarIA with one shadow."""
    scores = score_target(entrant, target, images, cache=cache)
    if isinstance(scores, str):
        print(f"{entrant.title}, {entrant.key}, {dict(entrant.options)}: {scores}", flush=True)
        return None
    row = TargetRow(scores, 1)
    point = {
        "attack": entrant.name, "shadows": entrant.shadows, "views": entrant.options.get("views"),
        "auc": vars(row.auc), "tpr": by_rate(row.tpr),
        "queries": scores.queries, "seconds": scores.seconds,
    }  # fmt: skip
    print(json.dumps(point), flush=True)
    return point


def main() -> None:
    """Measure every point and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bench", help="its name, or its folder")
    parser.add_argument("target")
    parser.add_argument("--data", nargs="+", required=True, help="sources of the targets' images")
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps shadows")
    parser.add_argument("--most", type=int, default=64, help="shadows, and views")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    (target,) = read_targets(bench_folder(arguments.bench), [arguments.target])
    images, began = find_images([target], arguments.data), process_time()
    most = Entrant("lira", {}, BOTH, arguments.most)
    *_, shadows = open_target([most], target, images, cache=arguments.cache)
    shadows.train()
    hours = (process_time() - began) / 3600
    points = list[Any]()
    for name, counts in SHADOWS.items():
        for count in (one for one in counts if one <= arguments.most):
            entrant = Entrant.of({"name": name}, BOTH, count)
            points.append(measure(entrant, target, images, arguments.cache))
    for name, counts in VIEWS.items():
        for count in (one for one in counts if one <= arguments.most):
            options = {"name": name, "views": count, **KNOWN.get(name, {})}
            points.append(measure(Entrant.of(options), target, images, arguments.cache))
    write_results(
        arguments.out,
        {
            "about": {"target": target.name, "version": target.card["version"],
                      "core_hours": round(hours, 3), **describe_machine()},
            "points": [one for one in points if one is not None],
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
