"""Stores the scores of built-in attacks on a bench: `python tools/score_bench.py encoders-v2`.

Each is scored for an attacker who knows both sides and, where it can, for one who knows non-members
alone. What is stored already is not run again, but for what failed, so an interrupted command goes
on. Attacks share what they compute on a target; their seconds are those of the bench's first that
is no federation, and its first that is one, where each is alone.

    python tools/score_bench.py encoders-v2 --data parquet:FILE .. [--attacks NAME ..]
        [--shadows N --cache FOLDER] [--targets NAME ..] [--workers N]
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from fedmia.bench.entries import own_entry, read_entries, write_entry
from fedmia.bench.scoring import (
    BOTH,
    OTHERS,
    Entrant,
    TargetScores,
    describe_key,
    score_together,
)
from fedmia.bench.targets import RESULTS, Images, Target, open_bench, read_targets
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
                print(f"{name}: {error}", file=sys.stderr)
                continue
            if entrant not in every:
                every.append(entrant)
    return every


def deal(
    entrants: Sequence[Entrant],
    targets: Sequence[Target],
    timed_targets: Collection[str],
    stored: Callable[[Entrant, Target], TargetScores | str | None],
) -> Iterator[tuple[list[Entrant], Target]]:
    """What is to be scored, in parts whose attacks share their work.

    Args:
        entrants: all that take part.
        targets: all that are to be scored.
        timed_targets: names of those on which each attack is alone, for its seconds.
        stored: the result that is there.

    Yields:
        Attacks, and a target; the timed ones last.
    """
    for target in sorted(targets, key=lambda one: one.name in timed_targets):
        groups = defaultdict[str, list[Entrant]](list)
        for entrant in entrants:
            result, timed = stored(entrant, target), target.name in timed_targets
            untimed = isinstance(result, TargetScores) and result.seconds is None
            if result is None or (timed and untimed):
                groups[f"{entrant.name}, {entrant.key}" if timed else ""].append(entrant)
        yield from ((group, target) for group in groups.values())


def score(entrants: Sequence[Entrant], target: Target, images: Images, cache: Path | None) -> Any:
    """Of each entrant its scores, by one thread, as sums depend on their number."""
    torch.set_num_threads(1)
    return score_together(entrants, target, images, cache=cache)


def main() -> int:
    """Score what is missing; returns the exit code: 0, or 2 bad input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bench", help="its name, or its folder")
    parser.add_argument("--data", nargs="+", default=[], help="sources of the targets' images")
    parser.add_argument("--attacks", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--targets", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--shadows", type=int, default=0, metavar="N")
    parser.add_argument("--cache", type=Path, help="folder that keeps trained shadows")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes")
    arguments = parser.parse_args()
    every = registry.names("attack")
    quick_first = sorted(every, key=lambda name: not is_quick(registry.load("attack", name)))
    try:
        folder, here, images = open_bench(arguments.bench, arguments.targets, arguments.data)
        targets = read_targets(folder)
        by_name = {one.name: one for one in targets}
        entries = {(one.attack, one.source): one for one in read_entries(folder, targets)}

        def stored(entrant: Entrant, target: Target) -> TargetScores | str | None:
            entry = entries.get((entrant.name, entrant.hash()))
            return entry.done(entrant.key).get(target.name) if entry else None

        names = arguments.attacks or quick_first
        timed = {one.federated: one.name for one in reversed(targets)}.values()
        parts = [*deal(entrants(names, arguments.shadows), here, timed, stored)]
        with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
            work = dict[Future[Any], tuple[list[Entrant], Target]]()
            for group, target in parts:
                what = group, target, target.own(images)
                work[pool.submit(score, *what, arguments.cache)] = group, target
            for future in as_completed(work):
                group, target = work[future]
                for entrant, scores in zip(group, future.result(), strict=True):
                    if len(group) > 1 and isinstance(scores, TargetScores):
                        scores = replace(scores, seconds=None)
                    with own_entry(folder / RESULTS, entrant):
                        write_entry(folder / RESULTS, entrant, {target.name: scores}, by_name)
                    result = scores if isinstance(scores, str) else "scored"
                    said = f"{entrant.title}, {describe_key(entrant.key)}, {target.name}: {result}"
                    print(said, flush=True)
    except InputError as error:
        return print_bad_input(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
