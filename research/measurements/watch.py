"""A watch on simulated scores: false stops, and looks until a leak is stopped. What a look costs.

Looks are those of `fedmia.flower.Watch`; only the scores are drawn. Each look scores the same
images: a score is normal, and `kept` is its correlation from look to look. Members' scores are
`shifted`, or those of some members are far above all others: `recognised`. A run is null where the
AUC is that of the bound at every look. A leak begins after a few looks at an AUC of .5.

A look's cost is processor time on one core, beside that of a client's epoch (`peer.py`).

    python research/measurements/watch.py [--parts null,leaks,smallnet,resnet18] [--runs 500]
                               [--out research/results/watch.json]

Parts that are left out stay in the file as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import peer  # beside this script
import torch
from _simulated_watch import stops
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedmia.flower.leakage import Leakage
from fedmia.runtime.environment import describe
from fedmia.statistics.intervals import clopper_pearson
from tests.recording.plain import PlainGrid

RESULTS = Path(__file__).parents[1] / "results" / "watch.json"
LOOKS, BEFORE, BOUND = 20, 4, 0.6  # planned looks; those before a leak begins; its bound
SIZES, KEPT = (100, 500), (0.0, 0.5, 0.95)  # images a side; correlations
NULL = [  # at an AUC of .5 there is one shape
    *product(("shifted",), (0.5, 0.6, 0.8), SIZES, KEPT),
    *product(("recognised",), (0.6, 0.8), SIZES, KEPT),
]
LEAKS = [*product((0.65, 0.7, 0.75, 0.8), SIZES, KEPT)]
EPOCH = 512  # images of a client


def null(runs: int) -> dict[str, Any]:
    """Runs whose leak is the bound itself."""
    rows = []
    for shape, bound, images, kept in NULL:
        at = stops([bound] * LOOKS, bound, shape, images, kept, runs)
        false = sum(look is not None for look in at)
        setting = {"shape": shape, "bound": bound, "images": images, "kept": kept}
        rows.append({**setting, "false": false})
        print(rows[-1], flush=True)
    below = [
        sum(look is not None for look in stops([0.5] * LOOKS, BOUND, "shifted", *one, runs))
        for one in product(SIZES, KEPT)
    ]
    return {
        "runs": runs, "looks": LOOKS, "settings": len(rows), "rows": rows,
        "by_kept": [false_stops(kept, rows, runs) for kept in KEPT],
        "without_leak": {"runs": runs * len(below), "false": sum(below)},
    }  # fmt: skip


def false_stops(kept: float, rows: list[dict[str, Any]], runs: int) -> dict[str, Any]:
    """Of all settings of a correlation: the share with its interval, and the worst setting."""
    false = [row["false"] for row in rows if row["kept"] == kept]
    total, (low, high) = runs * len(false), clopper_pearson(sum(false), runs * len(false))
    share = {"share": sum(false) / total, "low": low, "high": high}
    return {"kept": kept, "runs": total, **share, "most": max(false)}


def leaks(runs: int) -> dict[str, Any]:
    """Runs that begin to leak more than the bound."""
    rows = []
    for auc, images, kept in LEAKS:
        path = [0.5] * BEFORE + [auc] * (LOOKS - BEFORE)
        at = stops(path, BOUND, "shifted", images, kept, runs)
        after = np.array([np.inf if look is None else look - BEFORE for look in at])
        shares = {f"within_{n}": float(np.mean(after <= n)) for n in (1, 2, 5, LOOKS - BEFORE)}
        rows.append({"auc": auc, "images": images, "kept": kept, **shares})
        print(rows[-1], flush=True)
    return {"runs": runs, "looks": LOOKS, "before": BEFORE, "bound": BOUND, "rows": rows}


def cost(net: str) -> dict[str, Any]:
    """Processor seconds of a look, by images a side, and of a client's epoch."""
    torch.set_num_threads(1)
    module, images = (
        peer.Projected(net),
        np.random.default_rng(0).integers(0, 256, (2 * max(SIZES), 3, 32, 32), dtype=np.uint8),
    )
    looks = []
    for size in SIZES:
        meter = Leakage(module, images[:size], images[-size:])
        began = time.process_time()
        meter.measure(1, module.state_dict())
        looks.append({"images": size, "seconds": time.process_time() - began})
    peer.IMAGES = EPOCH
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "config": ConfigRecord()})
    where = {"partition-id": 0, "num-partitions": 10}
    PlainGrid(lambda message, context: message)  # so that messages can be made
    order, context = Message(content, 1, "train"), Context(1, 1, where, RecordDict(), {})
    began = time.process_time()
    peer.train(net, "float32", "", "cpu", order, context)
    client = time.process_time() - began
    for look in looks:  # a look after each fifth round of ten clients
        look |= {"client_epochs": look["seconds"] / client}
        look |= {"share": look["client_epochs"] / (5 * 10)}
    print(net, client, looks, flush=True)
    return {"epoch_images": EPOCH, "client_seconds": client, "looks": looks}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="null,leaks,smallnet,resnet18")
    parser.add_argument("--runs", type=int, default=500, help="of each setting")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    parts = {"null": null, "leaks": leaks}
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    for part in args.parts.split(","):
        results[part] = parts[part](args.runs) if part in parts else cost(part)
        args.out.write_text(json.dumps(results | describe(), indent=1) + os.linesep)


if __name__ == "__main__":
    main()
