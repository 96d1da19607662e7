"""A whole federation beside the same in plain Flower (`peer.py`), beside its limit, and
Ray beside inline.

Each is one process, from its start to its report, which the peer has not. Same encoder, clients,
images, steps and precision. The limit is these steps alone: no server, weights that travel,
checkpoints or report.

    python research/measurements/federation.py [--only small,resnet18]
        [--out research/results/federation.json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from _process import measure_process  # beside this script
from training import Client

from fedmia.runtime.environment import describe
from fedmia.storage.runfolder import RunFolder

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "federation.json"
# Encoder, clients, rounds, precision; what is asked: times faster than the peer.
CASES = {
    "small": ("smallnet", 10, 60, "float32", 5.0),
    "resnet18": ("resnet18", 2, 15, "bfloat16", 2.0),
}
SIDES = ("peer", "limit", "inline", "ray")


def run_steps(name: str) -> None:
    """The steps of all clients and rounds of a case, as many clients at once as inline trains."""
    torch.set_num_threads(1)
    net, count, rounds, precision, _ = CASES[name]
    clients = [Client(net, 32, 32, 1, precision, torch.device("cpu")) for _ in range(count)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in range(rounds):
            list(pool.map(lambda client: client.job(client.method).run(), clients))


def command(side: str, name: str, out: Path) -> list[str]:
    """The command line of a side of a case."""
    net, clients, rounds, precision, _ = CASES[name]
    if side == "limit":
        return [sys.executable, __file__, "--steps", name]
    if side == "peer":
        return [sys.executable, str(HERE / "peer.py"), net, str(clients), str(rounds), precision]
    members = 64 * clients
    flags = (
        f"--clients {clients} --rounds {rounds} --model {net} --train.precision {precision} "
        f"--dataset synthetic --data.images {members + 300} --split.members {members} "
        "--split.nonmembers 100 --split.known 10 --split.test 200 --partition iid "
        "--train.local_epochs 1 --train.batch_size 32 --attacker none --attacks none "
        f"--federation.snapshots 1 --device cpu --backend {side} --quiet --out {out}"
    )
    return [sys.executable, "-m", "fedmia.simulate", *flags.split()]


def measure(side: str, name: str) -> dict[str, Any]:
    """Seconds of one whole process, its own processor's among them, and its peak memory.

    Raises:
        RuntimeError: it failed; holds what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "RUN"
        measurement: dict[str, Any] = measure_process(
            command(side, name, out), {"OMP_NUM_THREADS": "1"}
        )
        measurement["s_a_round"] = measurement["wall_s"] / CASES[name][2]
        if (report := RunFolder(out).read_report_or_none()) is not None:
            timing = report.timing
            measurement["parts"] = {k: v for k, v in timing.items() if isinstance(v, float)}
    return measurement


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES), help="cases")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--steps", metavar="CASE", help="the steps of a case alone, not measured")
    args = parser.parse_args(arguments)
    if args.steps:
        return run_steps(args.steps)
    results = json.loads(args.out.read_text())["cases"] if args.out.exists() else {}
    for name in args.only.split(","):
        case = CASES[name]
        sides = {side: measure(side, name) for side in SIDES}
        times = {s: sides["peer"]["wall_s"] / sides[s]["wall_s"] for s in ("inline", "ray")}
        results[name] = {
            "net": case[0], "clients": case[1], "rounds": case[2], "precision": case[3],
            "asked": case[4], "sides": sides, "times_faster": times,
            "of_limit": sides["inline"]["wall_s"] / sides["limit"]["wall_s"],
        }  # fmt: skip
        row = ", ".join(f"{s} {sides[s]['wall_s']:.1f} s" for s in SIDES)
        print(
            f"{name}: {row}; inline {times['inline']:.2f} times faster than plain Flower, "
            f"{results[name]['of_limit']:.2f} of its limit"
        )
        sys.stdout.flush()
    args.out.write_text(json.dumps({"cases": results, **describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
