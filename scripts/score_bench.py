"""Stores the scores of built-in attacks on a bench: `python scripts/score_bench.py encoders-v1`.

Attacks without shadows, the quick ones first, each by an attacker who knows both sides and, where
it can, by one who knows non-members alone. What is stored already is not run again, but for what
failed, so an interrupted command goes on.

    python scripts/score_bench.py encoders-v1 [--data parquet:FILE] [--attacks NAME ..]
        [--shadows N --cache FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from fedmia.bench.entries import read_entries, write_entry
from fedmia.bench.scoring import BOTH, OTHERS, Entrant, describe_key, score_target
from fedmia.bench.targets import DIGITS, RESULTS, bench_folder, find_images, read_targets
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
    parser.add_argument("--data", help="the source of CIFAR-10's training images: parquet:FILE")
    parser.add_argument("--attacks", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--shadows", type=int, default=0, metavar="N")
    parser.add_argument("--cache", type=Path, help="folder that keeps trained shadows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    every = registry.names("attack")
    quick_first = sorted(every, key=lambda name: not is_quick(registry.load("attack", name)))
    names = arguments.attacks or quick_first
    try:
        folder = bench_folder(arguments.bench)
        targets = read_targets(folder)
        here = [one for one in targets if arguments.data or one.card["data"] == DIGITS]
        images, by_name = find_images(here, arguments.data), {one.name: one for one in targets}
        # Of digits first, so that every attack has some row soon.
        here.sort(key=lambda target: target.card["data"] != DIGITS)
        stored = {(one.attack, one.source): one for one in read_entries(folder, targets)}
        for data in dict.fromkeys(target.card["data"] for target in here):
            for entrant in entrants(names, arguments.shadows):
                entry = stored.get((entrant.name, entrant.hash()))
                done = {} if entry is None else entry.done(entrant.key)
                for target in here:
                    if target.name in done or target.card["data"] != data:
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
