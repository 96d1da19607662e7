"""How often the intervals of the report hold the truth: all cells of `_coverage.py`.

python research/measurements/coverage.py [--draws 1000] [--seed 0] [--parts subjects,subjects_tpr]
                              [--data-dir FOLDER] [--out research/results/coverage.json]

The part `encoders` trains on CIFAR-10, from FOLDER or fedmia's own folder of data.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from _coverage import PARTS, cells, names  # beside this script
from _coverage_fits import ENCODERS, encoders
from _results import write_results

from fedmia.runtime.environment import describe

RESULTS = Path(__file__).parents[1] / "results" / "coverage.json"


def main(arguments: Sequence[str] | None = None) -> None:
    every = (*PARTS, "encoders")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=1000, help="of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--parts", default=",".join(every), help="those to run; others stay")
    parser.add_argument("--data-dir", help="folder of CIFAR-10")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    parts = args.parts.split(",")
    kept = json.loads(args.out.read_text()) if set(parts) != set(every) else {}
    results: dict[str, Any] = kept | {"draws": args.draws, "seed": args.seed, "level": 0.95}
    with ProcessPoolExecutor(args.processes) as pool:
        each = partial(pool.submit, cells, draws=args.draws, seed=args.seed)
        running = {
            part: [each(part, name) for name in names(part)] for part in parts if part in PARTS
        }
        if "encoders" in parts:
            train = partial(pool.submit, encoders, seed=args.seed, data_dir=args.data_dir)
            running["encoders"] = [train(name) for name in ENCODERS]
        for part, job in running.items():
            results[part] = [row for future in job for row in future.result()]
    write_results(args.out, results | describe())


if __name__ == "__main__":
    main()
