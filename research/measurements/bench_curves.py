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
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from time import process_time
from typing import Any

import torch
from _results import write_results

from fedmia.bench.board import TargetRow
from fedmia.bench.command import by_rate
from fedmia.bench.entries import describe_machine
from fedmia.bench.scoring import (
    BOTH,
    Entrant,
    TargetScores,
    open_target,
    score_target,
    score_together,
)
from fedmia.bench.targets import Images, Target, bench_folder, find_images, read_targets

RESULTS = Path(__file__).parents[1] / "results" / "bench_curves.json"
COUNTS = (1, 2, 4, 8, 16, 32, 64)
SHADOWS = ("lira", "rmia", "bavaria")
VIEWS = ("similarity", "grad-norm", "encodermi-v")
KNOWN = {"encodermi-v": {"fit_on": "known"}}


def point(entrant: Entrant, scores: TargetScores, seconds: float | None) -> dict[str, Any]:
    """A point of a curve."""
    row = TargetRow(scores, 1)
    return {
        "attack": entrant.name, "shadows": entrant.shadows, "views": entrant.options.get("views"),
        "auc": vars(row.auc), "tpr": by_rate(row.tpr),
        "queries": scores.queries, "seconds": seconds,
    }  # fmt: skip


def of_shadows(target: Target, images: Images, cache: Path, most: int) -> Iterator[dict[str, Any]]:
    """Points of attacks with 1, 2, 4 .. shadows. The outputs of the first ones are not computed
    again for more of them, so the first attack's seconds add up to those that it takes alone."""
    counts = [count for count in COUNTS if count <= most]
    entrants = [Entrant.of(name, BOTH, count) for count in counts for name in SHADOWS]
    spent = 0.0
    for one, scores in zip(
        entrants, score_together(entrants, target, images, cache=cache), strict=True
    ):
        if isinstance(scores, str):  # as BaVarIA with one shadow
            print(f"{one.title}, {one.key}: {scores}", flush=True)
            continue
        first = one.name == SHADOWS[0]
        spent += scores.seconds or 0 if first else 0
        yield point(one, scores, spent if first else None)


def of_views(target: Target, images: Images, most: int) -> Iterator[dict[str, Any]]:
    """Points of attacks with 2, 4 .. views of each image, each alone."""
    for name in VIEWS:
        for count in (count for count in COUNTS if 2 <= count <= most):
            entrant = Entrant.of({"name": name, "views": count, **KNOWN.get(name, {})})
            scores = score_target(entrant, target, images)
            assert not isinstance(scores, str), scores
            yield point(entrant, scores, scores.seconds)


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
    most = Entrant(SHADOWS[0], {}, BOTH, arguments.most)
    *_, shadows = open_target([most], target, images, cache=arguments.cache)
    shadows.train()
    hours = (process_time() - began) / 3600
    points = list[dict[str, Any]]()
    for one in chain(
        of_shadows(target, images, arguments.cache, arguments.most),
        of_views(target, images, arguments.most),
    ):
        print(json.dumps(one), flush=True)
        points.append(one)
    write_results(
        arguments.out,
        {
            "about": {"target": target.name, "version": target.card["version"],
                      "core_hours": round(hours, 3), **describe_machine()},
            "points": points,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
