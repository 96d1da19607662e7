"""An audit beside two busy jobs: seconds with the threads that it chooses and with one a core.

A small untrained ViT of 32 pixels is audited with 300 members and 600 non-members: alone with one
thread, then beside two processes that never rest, with the audit's own choice and with a thread a
core. `ratio` is the wall time over the processor time needed alone divided by the fair share of a
core that one of three busy processes gets. The claim: at most 1.5 with the audit's own choice.

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
ATTACKS = "similarity,lpla,variance-only,sd-mi,fe-mi"
SIDES = {"members": (0, 300), "nonmembers": (300, 900)}


def write_case(folder: Path) -> list[str]:
    """The encoder and the images as files; the flags that name them."""
    torch.manual_seed(0)
    net = ViTTiny(width=96, depth=4).build(3, 32).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(net, (torch.rand(2, 3, 32, 32),), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / "vit.pt2")
    images = Synthetic(classes=4, images=900, pixels=32).load(Request(None, None, None, 0))
    flags = ["--encoder", str(folder / "vit.pt2"), "--allow-random", "true"]
    for side, (first, last) in SIDES.items():
        x = images.images[first:last].transpose(0, 2, 3, 1)
        np.savez(folder / f"{side}.npz", x=x, y=images.labels[first:last])
        flags += [f"--{side}", f"npz:{folder / side}.npz"]
    return flags


@contextlib.contextmanager
def busy(jobs: int) -> Iterator[None]:
    """Processes that never rest while the context is open."""
    line = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(line) for _ in range(jobs)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


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
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of one audit")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    cores = count_cores()
    result: dict[str, Any] = describe() | {"free_cores_before": measure_free_cores()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        flags = [*write_case(folder), "--attacks", arguments.attacks, "--device", "cpu"]
        alone = measure([*flags, "--threads", "1"], folder / "alone", arguments.limit)
        result["alone_one_thread"] = alone
        with busy(JOBS):
            for name, more in (("chosen", []), ("a_thread_a_core", ["--threads", str(cores)])):
                result[name] = measure([*flags, *more], folder / name, arguments.limit)
    if "cpu_s" not in alone:
        raise SystemExit(f"the audit alone took over {arguments.limit:g} s; a larger --limit")
    need = alone["cpu_s"] / min(1.0, cores / (JOBS + 1))
    for name in ("chosen", "a_thread_a_core"):
        row = result[name]
        row["ratio"] = row.get("wall_s", arguments.limit) / need
        print(f"{name}: {row['ratio']:.2f} times its share of the processor")
    arguments.out.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
