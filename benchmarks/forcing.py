"""What does it cost that a checkpoint is forced to the disk? With and without, in turn.

Files of a checkpoint of ten clients: ten states, the server's, then the index. In a run all of
this happens on a thread of its own, beside the next round. So the whole default run is timed with
and without it too, in turn, each in a process of its own; of each the least seconds count.

    python benchmarks/forcing.py [--runs 2] [--out benchmarks/results/forcing.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from _process import measure_process  # beside this script

from fedmia.runtime.environment import describe
from fedmia.storage import durable

CLIENTS, SIZE, TURNS = 10, 200_000, 15
RUN = "import runpy; runpy.run_module('fedmia.simulate', run_name='__main__', alter_sys=True)"
UNFORCED = "import os; os.fsync = lambda handle: None; "


def checkpoint(root: Path, name: str) -> float:
    """Milliseconds of one checkpoint, its files named after `name`."""
    began = time.perf_counter()
    files = [root / f"{name}-{client}" for client in range(CLIENTS + 1)]
    for file in files:
        with durable.replacing(file, forced=False) as (partial,):
            partial.write_bytes(bytes(SIZE))
    durable.force_all(files)
    durable.write({root / "index.json": "{}" * 500})
    return 1000 * (time.perf_counter() - began)


def whole_runs(turns: int) -> dict[str, Any]:
    """Least seconds of the default run, of the clock and of its own processors, by kind."""
    rows: dict[str, list[dict[str, float]]] = {"forced": [], "not_forced": []}
    with tempfile.TemporaryDirectory() as temporary:
        for turn in range(turns):
            for kind, own in rows.items():
                out = str(Path(temporary) / f"{kind}-{turn}")
                code = RUN if kind == "forced" else UNFORCED + RUN
                own.append(measure_process([sys.executable, "-c", code, "--quiet", "--out", out]))
    kinds = ("wall_s", "cpu_s")
    least = {kind: {k: min(r[k] for r in own) for k in kinds} for kind, own in rows.items()}
    more = {k: least["forced"][k] / least["not_forced"][k] for k in kinds}
    return {"turns": turns, **least, "times": more}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    results = Path(__file__).parent / "results" / "forcing.json"
    parser.add_argument("--out", type=Path, default=results, help="JSON file to write")
    parser.add_argument("--runs", type=int, default=2, help="default runs of each kind, or 0")
    arguments = parser.parse_args()
    forced, plain = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as temporary:
        for turn in range(TURNS):
            with patch("os.fsync", lambda handle: None):
                plain.append(checkpoint(Path(temporary), f"plain-{turn}"))
            forced.append(checkpoint(Path(temporary), f"forced-{turn}"))
    by_name = {"forced_ms": forced, "not_forced_ms": plain}
    medians = {name: round(statistics.median(times), 1) for name, times in by_name.items()}
    medians["more_ms"] = round(medians["forced_ms"] - medians["not_forced_ms"], 1)
    load = [round(number, 1) for number in os.getloadavg()]
    about = {"clients": CLIENTS, "bytes": SIZE, "turns": TURNS, "load": load}
    results: dict[str, Any] = {**about, **medians}
    if arguments.runs:
        results["run"] = whole_runs(arguments.runs)
    arguments.out.write_text(json.dumps({**results, **describe()}, indent=1) + "\n")
    print(results)


if __name__ == "__main__":
    main()
