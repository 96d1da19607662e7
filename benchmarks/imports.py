"""What a run imports before it begins, against `import torch`: `python benchmarks/imports.py`.

Medians of several fresh processes each, in turn, so that a slow moment of the machine hits all.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks" / "results" / "imports.json"
ROUNDS = 9
TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(module: str) -> float:
    """Time that a fresh process takes to import a module."""
    code = [sys.executable, "-c", TIMED.format(module)]
    return float(subprocess.run(code, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measure, print and write."""
    modules = ("torch", "fedmia.simulate", "fedmia.audit")
    seconds("fedmia.simulate")  # files into the cache
    rounds = [{module: seconds(module) for module in modules} for _ in range(ROUNDS)]
    medians = {m: statistics.median(one[m] for one in rounds) for m in modules}
    # A run imports torch among the rest.
    ratios = {m: statistics.median(one[m] / one["torch"] for one in rounds) for m in modules[1:]}
    results = {"rounds": ROUNDS, "seconds": medians, "times_torch": ratios}
    OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
