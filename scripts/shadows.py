"""Makes the shadow encoders of a bench once, for every attack that reads shadows:

    python scripts/shadows.py encoders-v2 --data parquet:FILE .. --cache FOLDER
        [--count 4] [--targets NAME ..]

A shadow is trained by the recipe of a target on images that are of no target. Its folder below
FOLDER is called by the SHA-256 of all that decides its bits, so targets of one recipe share theirs,
and those that are there are not made again. `bench/NAME/shadows.json` lists, of each target, these
names and the hours of a core that they took; `scripts/score_bench.py --shadows N --cache FOLDER`
reads them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import torch

from fedmia.bench.scoring import BOTH, Entrant, open_target
from fedmia.bench.targets import bench_folder, find_images, have_images, read_targets
from fedmia.cli.command import print_bad_input
from fedmia.settings.errors import InputError
from fedmia.shadows.cache import ENCODER
from fedmia.storage import durable
from fedmia.untrusted.text import read_json

MANIFEST = "shadows.json"


def main() -> int:
    """Make what is missing; returns the exit code: 0, or 2 bad input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bench", help="its name, or its folder")
    parser.add_argument("--data", nargs="+", default=[], help="sources of the targets' images")
    parser.add_argument("--targets", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--count", type=int, default=4, metavar="N")
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        folder = bench_folder(arguments.bench)
        targets = read_targets(folder, arguments.targets)
        images = find_images(targets, arguments.data)
        file = folder / MANIFEST
        manifest: dict[str, Any] = read_json(file) if file.is_file() else {}
        for target in have_images(targets, images):
            if target.federated or not target.card["epochs"]:
                continue
            entrant, began = Entrant("lira", {}, BOTH, arguments.count), process_time()
            before = {*arguments.cache.glob(f"*/{ENCODER}")}
            *_, shadows = open_target(entrant, target, images, cache=arguments.cache)
            names = [shadow.key for shadow in shadows.train()]
            trained = {*arguments.cache.glob(f"*/{ENCODER}")} - before
            if trained or target.name not in manifest:
                hours = manifest.get(target.name, {}).get("core_hours", 0)
                hours += (process_time() - began) / 3600 if trained else 0
                manifest[target.name] = {"core_hours": round(hours, 3), "shadows": names}
                durable.write({file: json.dumps(manifest, indent=1) + "\n"})
            print(f"{target.name}: {len(trained)} made, {len(names) - len(trained)} were there")
    except InputError as error:
        return print_bad_input(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
