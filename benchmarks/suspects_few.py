"""May an alarm be raised among few clients? What benchmarks/plans/suspects_few.yaml asks.

    python benchmarks/suspects_few.py run FOLDER [--seconds N]
    python benchmarks/suspects_few.py answer [FOLDER] [--out FILE]

`run` makes the planned federations that FOLDER lacks, a file each, and begins no further one after
N seconds. `answer` judges them, by whole seeds, and says how many are there. Without FOLDER it
judges the suspicions that FILE has.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import suspects
import torch

HERE = Path(__file__).parent
PLAN = HERE / "plans" / "suspects_few.yaml"
RESULTS = HERE / "results" / "suspects_few.json"
CLIMB = "climb"


@dataclass(frozen=True)
class Few:
    """One planned federation."""

    seed: int
    split: str
    clients: int
    rounds: int
    kind: str

    @property
    def name(self) -> str:
        split = self.split.replace(" ", "_")
        return f"{self.seed}-{split}-{self.clients}-{self.rounds}-{self.kind}"

    @property
    def file(self) -> str:
        return f"{self.name}.json"


def seeds(plan: dict[str, Any], look: str) -> range:
    """The seeds of a look: `calibration`, `fresh` or `attacked`."""
    return range(plan[look]["first"], plan[look]["first"] + plan[look]["number"])


def of_seed(plan: dict[str, Any], look: str, seed: int) -> list[Few]:
    """All federations of one seed of a look."""
    kind = CLIMB if look == "attacked" else suspects.TWIN
    lengths = sorted({*plan["lengths"].values()}) if kind == CLIMB else plan["rounds"][-1:]
    where = itertools.product(plan["splits"], plan["clients"], lengths)
    return [Few(seed, *each, kind) for each in where]


def cells(plan: dict[str, Any]) -> Iterator[Few]:
    """All that is planned: calibration, then fresh and attacked federations by turns."""
    for seed in seeds(plan, "calibration"):
        yield from of_seed(plan, "calibration", seed)
    for fresh, attacked in itertools.zip_longest(seeds(plan, "fresh"), seeds(plan, "attacked")):
        for look, seed in (("attacked", attacked), ("fresh", fresh)):
            if seed is not None:
                yield from of_seed(plan, look, seed)


def federation(plan: dict[str, Any], cell: Few) -> dict[str, Any]:
    """Run one federation, and measure every update of it."""
    whole = plan["settings"]
    lengths = {"rounds": cell.rounds, "keep_updates": cell.rounds}
    lengths["attack_rounds"] = min(whole["federation"]["attack_rounds"], cell.rounds // 2)
    settings = whole | {"federation": whole["federation"] | lengths}
    sized = plan | {"clients": cell.clients, "settings": settings}
    return suspects.federation(sized, suspects.Cell(cell.seed, cell.split, 1, cell.kind))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "answer"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the federations' measurements")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin none after so many")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    plan = suspects.load_plan(PLAN)
    if args.what == "run":
        if args.folder is None:
            parser.error("run needs FOLDER")
        torch.set_num_threads(1)
        suspects.run(cells(plan), lambda cell: federation(plan, cell), args.folder, args.seconds)


if __name__ == "__main__":
    main()
