"""Is `torch.compile` worth it for training on a CPU? Its own seconds, and a step with and without.

A step is a client's, as in `benchmarks/training.py`; compiled are the encoder and the momentum
encoder, forward and backward. Rounds of both take turns in one process; of each the least
processor seconds count. `worth_after_min`: minutes of training after which the compiler's own
seconds have come in again; None where a step is no faster.

    python benchmarks/compiled.py [--nets smallnet,resnet18] [--repeats 5]
        [--out benchmarks/results/compiled.json]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from training import Client  # beside this script

from fedmia.runtime.environment import describe

RESULTS = Path(__file__).parent / "results" / "compiled.json"
ASKED = 1.15  # times faster, for an option to be worth its place
EPOCHS = {"smallnet": 40, "resnet18": 4}  # of a timed round, of two steps each


def measure(net: str, repeats: int) -> dict[str, Any]:
    """Seconds of the compiler, and the least of a step with and without it."""
    client = Client(net, 32, 32, 1, "float32", torch.device("cpu"))
    methods = {"eager": client.build_method(), "compiled": client.build_method()}
    began, wall = time.process_time(), time.perf_counter()
    client.job(methods["eager"]).run()
    first = {"eager": time.process_time() - began}
    for encoder in (methods["compiled"].encoder, methods["compiled"].key_encoder):
        encoder.compile()
    began, wall = time.process_time(), time.perf_counter()
    client.job(methods["compiled"]).run()
    first["compiled"] = time.process_time() - began
    compile_wall = time.perf_counter() - wall
    client.epochs = EPOCHS[net]
    steps: dict[str, list[float]] = {kind: [] for kind in methods}
    for _ in range(repeats):
        for kind, method in methods.items():
            job = client.job(method)
            began = time.process_time()
            job.run()
            steps[kind].append((time.process_time() - began) / job.total_steps)
    least = {kind: min(times) for kind, times in steps.items()}
    saved = least["eager"] - least["compiled"]
    minutes = compile_wall / saved * least["eager"] / 60 if saved > 0 else None
    return {
        "first_round_s": first, "compile_wall_s": compile_wall, "step_s": least,
        "faster": least["eager"] / least["compiled"], "worth_after_min": minutes,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(EPOCHS))
    parser.add_argument("--repeats", type=int, default=5, help="of which the least is taken")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    before, nets = os.getloadavg(), {}
    for net in args.nets.split(","):
        nets[net] = measure(net, args.repeats)
        print(net, nets[net], flush=True)
    results = {"nets": nets, "asked": ASKED, "load": {"before": before, "after": os.getloadavg()}}
    args.out.write_text(json.dumps(results | describe(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
