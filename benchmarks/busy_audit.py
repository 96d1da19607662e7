"""An audit beside two busy jobs: does it lose more than its share of the processor?

A small untrained ViT of 32 pixels is audited with 300 members and 600 non-members: alone with one
thread, then beside two processes that never rest, with the audit's own choice (`--compare`: and
with a thread a core). The processes that never rest say what a fair share is: the part of a core
that each got, by its own processor seconds, whatever else loads the machine.

- `wall_ratio`: wall seconds of the audit over (its processor seconds alone / that share);
- `processor_ratio`: processor seconds beside the jobs over those alone, one thread.

The claim: `wall_ratio` is at most 1.5 with the audit's own choice.

    python benchmarks/busy_audit.py [--attacks NAME,..] [--limit SECONDS] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.nets.vit import ViTTiny
from fedmia.runtime.cores import count_cores
from fedmia.runtime.environment import describe
from fedmia.runtime.load import measure_free_cores

RESULTS = Path(__file__).parent / "results" / "busy_audit.json"
JOBS = 2
ATTACKS = "similarity,lpla,variance-only,supervised-mi,dataset-inference"


def write_case(folder: Path, width: int, depth: int, members: int, others: int) -> list[str]:
    """The encoder and the images as files; the flags that name them."""
    torch.manual_seed(0)
    net = ViTTiny(width=width, depth=depth).build(3, 32).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(net, (torch.rand(2, 3, 32, 32),), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / "vit.pt2")
    images = Synthetic(classes=4, images=members + others, pixels=32).load(
        Request(None, None, None, 0)
    )
    flags = ["--encoder", str(folder / "vit.pt2"), "--allow-random", "true"]
    sides = {"members": (0, members), "nonmembers": (members, members + others)}
    for side, (first, last) in sides.items():
        x = images.images[first:last].transpose(0, 2, 3, 1)
        np.savez(folder / f"{side}.npz", x=x, y=images.labels[first:last])
        flags += [f"--{side}", f"npz:{folder / side}.npz"]
    return flags


@contextlib.contextmanager
def busy(jobs: int) -> Iterator[dict[str, Any]]:
    """Processes that never rest while the context is open.

    Yields:
        A dictionary that holds `fair_share` after the context: mean cores a process got.
    """
    line = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(line) for _ in range(jobs)]
    began, row = time.perf_counter(), {}
    seconds = 0.0
    try:
        yield row
    finally:
        wall = time.perf_counter() - began
        for process in processes:
            process.kill()
            used = os.wait4(process.pid, 0)[2]
            process.returncode = -9
            seconds += used.ru_utime + used.ru_stime
        row["fair_share"] = seconds / wall / jobs


def measure(flags: list[str], out: Path, limit: float) -> dict[str, Any]:
    """Wall and processor seconds of an audit, its lines of progress, and its scores."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    began, before = time.perf_counter(), os.times()
    line = [sys.executable, "-m", "fedmia.audit", *flags, "--out", str(out)]
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=limit, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {"over_s": limit}
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    after, wall = os.times(), time.perf_counter() - began
    report = json.loads((out / "report.json").read_text())
    said = done.stderr.splitlines()
    return {
        "wall_s": wall,
        "cpu_s": sum(after[2:4]) - sum(before[2:4]),
        "every_30_s": sum("elapsed" in one for one in said),
        "threads": [one for one in said if "--threads" in one],
        "auc": {row["name"]: row["auc"] for row in report["attacks"]},
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attacks", default=ATTACKS)
    parser.add_argument("--width", type=int, default=48, help="of the ViT")
    parser.add_argument("--depth", type=int, default=4, help="blocks of the ViT")
    parser.add_argument("--members", type=int, default=300)
    parser.add_argument("--nonmembers", type=int, default=600)
    parser.add_argument("--views", type=int, default=12, help="of an image, in similarity")
    parser.add_argument("--compare", action="store_true", help="also with a thread a core")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of one audit")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    cores = count_cores()
    result: dict[str, Any] = describe() | {
        "free_cores_before": measure_free_cores(),
        "images": {"members": arguments.members, "nonmembers": arguments.nonmembers},
        "attacks": arguments.attacks,
        "vit": {"width": arguments.width, "depth": arguments.depth},
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sizes = arguments.members, arguments.nonmembers
        flags = [
            *write_case(folder, arguments.width, arguments.depth, *sizes),
            "--attacks",
            arguments.attacks,
            "--device",
            "cpu",
        ]
        alone = measure([*flags, "--threads", "1"], folder / "alone", arguments.limit)
        result["alone_one_thread"] = alone
        if "cpu_s" not in alone:
            raise SystemExit(f"the audit alone took over {arguments.limit:g} s; a larger --limit")
        ways = [("chosen", list[str]())]
        ways += [("a_thread_a_core", ["--threads", str(cores)])] * arguments.compare
        for name, more in ways:
            with busy(JOBS) as share:
                row = measure([*flags, *more], folder / name, arguments.limit)
            row |= share | {"load": os.getloadavg()[0]}
            row["wall_ratio"] = (
                row.get("wall_s", arguments.limit) * row["fair_share"] / alone["cpu_s"]
            )
            if "cpu_s" in row:
                row["processor_ratio"] = row["cpu_s"] / alone["cpu_s"]
            result[name] = row
            print(f"{name}: {row['wall_ratio']:.2f} times its share of the processor", flush=True)
            arguments.out.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
