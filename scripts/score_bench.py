"""Stores the scores of built-in attacks on a bench: `python scripts/score_bench.py encoders-v2`.

The quick ones first, each by an attacker who knows both sides and, where it can, by one who knows
non-members alone. What is stored already is not run again, but for what failed, so an interrupted
command goes on. Two commands side by side work on different attacks: `--share 1/2`, `--share 2/2`.

    python scripts/score_bench.py encoders-v2 --data parquet:FILE .. [--attacks NAME ..]
        [--shadows N --cache FOLDER] [--targets NAME ..] [--share I/N]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from fedmia.bench.entries import own_entry, read_entries, write_entry
from fedmia.bench.scoring import BOTH, OTHERS, Entrant, describe_key, score_target
from fedmia.bench.targets import (
    RESULTS,
    bench_folder,
    find_images,
    have_images,
    read_targets,
)
from fedmia.cli.command import print_bad_input
from fedmia.settings import registry
from fedmia.settings.commands.roles import is_quick
from fedmia.settings.errors import InputError

KNOWN = {"fit_on": "known"}  # of EncoderMI where no shadow is trained


def entrants(names: list[str], shadows: int) -> list[Entrant]:
    """Every attack that can take part, by every attacker that it can be of."""
    every = list[Entrant]()
    for name in names:
        cls = registry.load("attack", name)
        options = KNOWN if hasattr(cls, "fit_on") and not shadows else {}
        for knows in (BOTH, OTHERS):
            try:
                entrant = Entrant.of({"name": name, **options}, knows, shadows)
            except InputError as error:
                print(f"{name}: {error}", flush=True)
                continue
            if entrant not in every:
                every.append(entrant)
    return every


def main() -> int:
    """Score what is missing; returns the exit code: 0, or 2 bad input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bench", help="its name, or its folder")
    parser.add_argument("--data", nargs="+", default=[], help="sources of the targets' images")
    parser.add_argument("--attacks", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--targets", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--shadows", type=int, default=0, metavar="N")
    parser.add_argument("--cache", type=Path, help="folder that keeps trained shadows")
    parser.add_argument("--share", default="1/1", help="every Nth attack from the Ith on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    first, step = map(int, arguments.share.split("/"))
    every = registry.names("attack")
    quick_first = sorted(every, key=lambda name: not is_quick(registry.load("attack", name)))
    names = (arguments.attacks or quick_first)[first - 1 :: step]
    try:
        folder = bench_folder(arguments.bench)
        targets = read_targets(folder)
        by_name = {one.name: one for one in targets}
        images = find_images(targets, arguments.data)
        here = have_images(read_targets(folder, arguments.targets), images)
        stored = {(one.attack, one.source): one for one in read_entries(folder, targets)}
        for entrant in entrants(names, arguments.shadows):
            entry = stored.get((entrant.name, entrant.hash()))
            done = {} if entry is None else entry.done(entrant.key)
            with own_entry(folder / RESULTS, entrant):
                for target in here:
                    if target.name in done:
                        continue
                    scores = score_target(entrant, target, images, cache=arguments.cache)
                    write_entry(folder / RESULTS, entrant, {target.name: scores}, by_name)
                    result = scores if isinstance(scores, str) else f"{scores.seconds:.1f} s"
                    said = f"{entrant.title}, {describe_key(entrant.key)}, {target.name}: {result}"
                    print(said, flush=True)
    except InputError as error:
        return print_bad_input(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
