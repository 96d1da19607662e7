"""Makes the shadow encoders of a bench once, for every attack that reads shadows:

    python tools/shadows.py encoders-v2 --data parquet:FILE .. --cache FOLDER
        [--count 4] [--targets NAME ..] [--workers N]

A shadow is trained by the recipe of a target on images that are of no target. Its folder below
FOLDER is called by the SHA-256 of all that decides its bits, so targets of one recipe share theirs,
and those that are there are not made again. `research/bench/NAME/shadows.json` lists,
of each target, these names and the hours of a core that they took; `tools/score_bench.py
--shadows N --cache FOLDER` reads them.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

import torch

from fedmia.bench.scoring import BOTH, Entrant, open_target
from fedmia.bench.targets import Images, Target, open_bench
from fedmia.cli.command import print_bad_input
from fedmia.settings.errors import InputError
from fedmia.shadows.cache import ENCODER
from fedmia.storage import durable
from fedmia.untrusted.text import read_json

MANIFEST = "shadows.json"


def make(target: Target, images: Images, count: int, cache: Path) -> tuple[list[str], int, float]:
    """Train the shadows of a target that are not there, by one thread.

    Args:
        target: whose recipe they have.
        images: at least the target's.
        count: of shadows.
        cache: folder that keeps them.

    Returns:
        Their names, how many were trained, and the hours of a core.
    """
    torch.set_num_threads(1)
    entrant, began = Entrant("lira", {}, BOTH, count), process_time()
    *_, shadows = open_target([entrant], target, images, cache=cache)
    before = {*cache.glob(f"*/{ENCODER}")}
    names = [shadow.key for shadow in shadows.train()]
    trained = sum(cache / name / ENCODER not in before for name in names)
    return names, trained, (process_time() - began) / 3600 if trained else 0


def main() -> int:
    """Make what is missing; returns the exit code: 0, or 2 bad input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bench", help="its name, or its folder")
    parser.add_argument("--data", nargs="+", default=[], help="sources of the targets' images")
    parser.add_argument("--targets", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--count", type=int, default=4, metavar="N")
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps them")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes")
    arguments = parser.parse_args()
    try:
        folder, here, images = open_bench(arguments.bench, arguments.targets, arguments.data)
        targets = [one for one in here if not one.federated and one.card["epochs"]]
        file = folder / MANIFEST
        manifest: dict[str, Any] = read_json(file) if file.is_file() else {}
        with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
            rest = arguments.count, arguments.cache
            work = {pool.submit(make, one, one.own(images), *rest): one for one in targets}
            for future in as_completed(work):
                name, (keys, trained, hours) = work[future].name, future.result()
                hours += manifest.get(name, {}).get("core_hours", 0)
                manifest[name] = {"core_hours": round(hours, 3), "shadows": keys}
                durable.write({file: json.dumps(manifest, indent=1) + "\n"})
                print(f"{name}: {trained} made, {len(keys) - trained} were there", flush=True)
    except InputError as error:
        return print_bad_input(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
