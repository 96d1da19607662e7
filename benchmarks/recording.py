"""What recording costs: seconds of a round and peak memory, with and without it, all updates kept.

Clients of plain Flower (`benchmarks/peer.py`) train in this process, so a round is as short as it
can be: Ray and a deployment write as much and take longer. Rounds alternate between a grid that is
recorded and one that is not, so a slow moment of the machine meets both; the cost (`share`) is the
median of the pairs. `held_up` is the part of a round in which it waited for its recording. Memory
is that of a process of its own for each side.

    python benchmarks/recording.py [--only smallnet,resnet18]
        [--out benchmarks/results/recording.json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import peer  # beside this script
from _process import measure_process
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedmia.flower import record
from fedmia.runtime.environment import describe
from tests.recording.plain import NODES, PlainGrid

RESULTS = Path(__file__).parent / "results" / "recording.json"
# Clients, images of a client, pairs of rounds after the first.
CASES = {"smallnet": (5, 256, 12), "resnet18": (2, 128, 10)}


def play(net: str, sides: Sequence[str], pairs: int) -> list[dict[str, float]]:
    """Seconds of each round by side, in turns; the first round is left out."""
    clients, peer.IMAGES, _ = CASES[net]
    seconds, spent = list[dict[str, float]](), list[float]()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, ExitStack() as stack:
        # Each side's clients keep nothing between rounds, so both do the same.
        grids = {
            side: PlainGrid(lambda m, c: peer.train(net, "float32", m, c)) for side in sides
        }  # fmt: skip
        if "recorded" in grids:
            recording = record(grids["recorded"], Path(folder) / "REC", updates="all")
            grids["recorded"] = stack.enter_context(recording)
            timed(grids["recorded"]._recorder, spent)
        models = dict.fromkeys(sides, ArrayRecord(peer.Projected(net).state_dict()))
        for round in range(1, pairs + 2):
            seconds.append({})
            spent.clear()
            for side in (sides, sides[::-1])[round % 2]:
                began = time.perf_counter()
                config = ConfigRecord({"server-round": round})
                content = RecordDict({"arrays": models[side], "config": config})
                orders = [Message(content, node, "train") for node in NODES[:clients]]
                replies = list(grids[side].send_and_receive(orders))
                sent = [reply.content["arrays"] for reply in replies]
                models[side] = ArrayRecord({
                    name: Array(np.asarray(sum(s[name].numpy() for s in sent) / clients))
                    for name in sent[0]
                })  # fmt: skip
                seconds[-1][side] = time.perf_counter() - began
            seconds[-1]["held_up"] = sum(spent)
    return seconds[1:]


def timed(recorder: Any, spent: list[float]) -> None:
    """Note the seconds of each call of a recorder."""

    def time_of(method: Any, *values: Any) -> Any:
        began = time.perf_counter()
        result = method(*values)
        spent.append(time.perf_counter() - began)
        return result

    for name in ("see_orders", "see_replies"):
        setattr(recorder, name, partial(time_of, getattr(recorder, name)))


def peak_memory(net: str) -> dict[str, float]:
    """MiB of a process of each side; a process counts what its parent held when it began."""
    sides = {
        side: [sys.executable, __file__, "--play", net, side] for side in ("plain", "recorded")
    }
    threads = {"OMP_NUM_THREADS": "1"}
    return {side: measure_process(one, threads)["peak_mib"] for side, one in sides.items()}


def measure(net: str, peaks: dict[str, float]) -> dict[str, Any]:
    rounds = play(net, ("plain", "recorded"), CASES[net][2])
    shares = [one["recorded"] / one["plain"] - 1 for one in rounds]
    size = sum(t.numel() * t.element_size() for t in peer.Projected(net).state_dict().values())
    return {
        "clients": CASES[net][0], "images": CASES[net][1], "rounds": rounds,
        "seconds": median(one["plain"] for one in rounds), "share": median(shares),
        "held_up": median(one["held_up"] / one["plain"] for one in rounds),
        "model_mib": size / 2**20, "peak_mib": peaks,
        "more_models": (peaks["recorded"] - peaks["plain"]) * 2**20 / size,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES), help="networks")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--play", nargs=2, help="a network and a side: only its rounds")
    args = parser.parse_args(arguments)
    if args.play:
        play(args.play[0], args.play[1:], 2)
        return
    peaks = {net: peak_memory(net) for net in args.only.split(",")}
    results = {net: measure(net, one) for net, one in peaks.items()}
    for net, one in results.items():
        more = f"{one['more_models']:.1f} models more in memory"
        print(f"{net}: {100 * one['share']:+.1f} % of {one['seconds']:.2f} s a round, "
              f"held up {100 * one['held_up']:.1f} %, {more}")  # fmt: skip
    args.out.write_text(json.dumps({"cases": results, **describe()}, indent=1) + os.linesep)


if __name__ == "__main__":
    main()
