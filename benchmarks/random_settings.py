"""Settings drawn at random: each is refused in one line, or runs to a report that its type accepts.

    python benchmarks/random_settings.py [--trees 1000] [--out FILE]

The trees of `simulate` and `audit` are those of `tests/config/random_settings.py`. Each runs in a
process that is limited and watched, as `benchmarks/strangers.py` reads files.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from _guarded import Case, run_cases
from hypothesis import HealthCheck, Phase, given, settings

from fedmia.runtime.environment import describe

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.config.random_settings import run_settings, trees  # noqa: E402

SHARES = {"simulate": 7, "audit": 3}  # of ten trees
# A refusal names the option, not the file of the settings.
NAMES = {"read": "ran", "unnamed": "refused"}


def draw_trees(command: str, count: int) -> list[dict[str, Any]]:
    """So many, the same each time."""
    drawn: list[dict[str, Any]] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(trees(command))
    def keep(tree: dict[str, Any]) -> None:
        drawn.append(json.loads(json.dumps(tree)))

    keep()
    return drawn


def write_marker(folder: Path) -> Path:
    """The folder of a run."""
    return folder


def run_tree(command: str, tree: dict[str, Any], folder: Path) -> None:
    """As the command does."""
    run_settings(command, tree, folder)


def main() -> int:
    """Run all and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trees", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="JSON file of the result")
    flags = parser.parse_args()
    began = time.perf_counter()
    kinds, wrong = {}, []
    for command, share in SHARES.items():
        drawn = draw_trees(command, flags.trees * share // sum(SHARES.values()))
        cases = [
            Case(command, str(i), write_marker, partial(run_tree, command, tree))
            for i, tree in enumerate(drawn)
        ]
        outcomes = []
        with tempfile.TemporaryDirectory(prefix="settings-") as folder:
            for outcome in run_cases(cases, Path(folder)):
                outcomes.append(outcome)
                if outcome.result not in ("read", "refused", "unnamed"):
                    tree = drawn[int(outcome.name)]
                    wrong.append({**vars(outcome), "tree": tree})
                    print(command, outcome.result, outcome.message[:600], tree, flush=True)
        counts = Counter(NAMES.get(o.result, o.result) for o in outcomes)
        kinds[command] = {
            "trees": len(outcomes),
            "results": dict(counts),
            "most_cpu_s": round(max(o.seconds for o in outcomes), 2),
            "most_mib": round(max(o.peak_mib for o in outcomes)),
        }
        print(command, kinds[command], flush=True)
    result = {
        "trees": sum(kind["trees"] for kind in kinds.values()),
        "seconds": round(time.perf_counter() - began),
        **describe(),
        "kinds": kinds,
        "wrong": wrong,
    }
    if flags.out:
        flags.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
