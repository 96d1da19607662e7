"""What does it cost that a checkpoint is forced to the disk? With and without, in turn.

Files of a checkpoint of ten clients: ten states, the server's, then the index. In a run all of
this happens on a thread of its own, beside the next round.

    python benchmarks/forcing.py [--out benchmarks/results/forcing.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from fedmia.runtime.environment import describe
from fedmia.storage import durable

CLIENTS, SIZE, TURNS = 10, 200_000, 15


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    results = Path(__file__).parent / "results" / "forcing.json"
    parser.add_argument("--out", type=Path, default=results, help="JSON file to write")
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
    arguments.out.write_text(json.dumps({**about, **medians, **describe()}, indent=1) + "\n")
    print(medians)


if __name__ == "__main__":
    main()
