"""Memory as `--plan` says it before the start, beside the peak that was measured.

Each case is a run or an audit of a few seconds in which another part of the memory is the largest:
weights, activations, what many clients keep, many clients in one pass, scored images, layers,
crops, kept updates, shadow encoders, a large encoder. Both are whole processes; the peak is the
largest resident set. The exit code is 1 where a peak is over what its plan said.

    python research/measurements/memory.py [--cases activations,weights,..] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _process import measure_process  # beside this script
from _results import write_results

from fedmia.runtime.environment import describe

RESULTS = Path(__file__).parents[1] / "results" / "memory.json"
RUN = (
    "simulate --dataset synthetic --partition iid --device cpu --train.local_epochs 1 --quiet "
    "--federation.snapshots 1 --federation.placebo false --split.test 200 --split.known 40 "
    "--attacks {attacks} --data.pixels {pixels} --clients {clients} --rounds {rounds} "
    "--split.members {members} --split.nonmembers {nonmembers} --data.images {images} "
    "--split.scored {scored} --model {model} --train.batch_size {batch}"
)
BASE: Mapping[str, Any] = {
    "attacks": "similarity --attack.similarity.views 4", "pixels": 8, "clients": 2, "rounds": 3,
    "members": 240, "scored": 200, "model": "smallnet", "batch": 32,
}  # fmt: skip
AUDIT = "audit --device cpu --quiet --threads 2 {images} --known 20 "
SHADOWS = "--shadows 4 --shadow.model resnet18 --shadow.knowledge data --shadow.epochs 2"
RUNS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "activations": (
        "SmallNet of width 64, batches of 128 images of 32 pixels",
        {"model": "smallnet --model.width 64", "pixels": 32, "batch": 128, "members": 300},
    ),
    "weights": (
        "ResNet-18, 2 clients",
        {"model": "resnet18", "batch": 16, "pixels": 16, "members": 96, "scored": 50},
    ),
    "kept": (
        "200 clients, 20 a round",
        {"clients": 200, "rounds": 10, "members": 1_000, "batch": 5,
         "model": "smallnet --model.width 64 --federation.participation 0.1 "
         "--machine.clients_at_once 1"},
    ),
    "at-once": (
        "64 clients in one pass",
        {"clients": 64, "members": 640, "batch": 10, "pixels": 16,
         "model": "smallnet --model.width 32 --machine.clients_at_once 64"},
    ),
    "images": (
        "4,000 scored images a side",
        {"members": 4_100, "scored": 4_000, "model": "smallnet --model.width 8", "rounds": 2,
         "batch": 256},
    ),
    "layers": (
        "internal, by layer, 600 scored a side",
        {"attacks": "internal", "members": 700, "scored": 600, "pixels": 16, "rounds": 2,
         "model": "smallnet --model.width 64"},
    ),
    "crops": (
        "PartCrop, 300 scored a side",
        {"attacks": "partcrop", "members": 400, "scored": 300, "pixels": 16, "rounds": 2},
    ),
    "updates": (
        "a server that keeps the updates of 4 rounds",
        {"attacks": "similarity,all-for-one --attack.similarity.views 4 --attacker server",
         "clients": 4, "rounds": 4, "members": 160, "scored": 100,
         "model": "smallnet --model.width 64 --federation.keep_updates 4"},
    ),
}  # fmt: skip
AUDITS: Mapping[str, tuple[str, str]] = {
    "encoder": (
        "audit of a ResNet-50 at 32 pixels",
        "--encoder torchvision:resnet50 --size 32 --attacks similarity --attack.similarity.views 4",
    ),
    "shadows": (
        "audit of a ResNet-18 with 4 shadows like it",
        f"--encoder torchvision:resnet18 --size 32 --attacks encodermi-t {SHADOWS} "
        "--attack.encodermi-t.views 4 --shadow.images 16",
    ),
}


def command(case: str, folder: Path) -> list[str]:
    """The command of a case, without `--plan` and `--out`; an audit's images are written first."""
    if case in AUDITS:
        from _images import write_images  # beside this script

        return f"{AUDIT.format(images=write_images(folder, 100, 32))} {AUDITS[case][1]}".split()
    values = {**BASE, **RUNS[case][1]}
    values["nonmembers"] = values["scored"] + 40
    values["images"] = values["members"] + values["nonmembers"] + 400
    return RUN.format(**values).split()


def measure(case: str) -> dict[str, Any]:
    """Plan and peak of one case, in MB.

    Raises:
        RuntimeError: a command failed; holds what it printed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        verb, *flags = command(case, folder)
        line = [sys.executable, "-m", f"fedmia.{verb}", *flags, "--out", str(folder / "OUT")]
        plan = subprocess.run([*line, "--plan", "--json"], capture_output=True, text=True)
        if plan.returncode:
            raise RuntimeError(plan.stderr[-2000:])
        memory = json.loads(plan.stdout)["memory"]
        measured = measure_process(line)
    peak = measured["peak_mib"] * 1024**2 / 1e6
    what = AUDITS[case][0] if case in AUDITS else RUNS[case][0]
    own = {name: memory[name] for name in ("peak_mb", "phase", "lower", "parts_mb", "phases_mb")}
    return {
        "case": case, "what": what, "flags": " ".join(flags), "plan": own, "measured_mb": peak,
        "ratio": memory["peak_mb"] / peak, "wall_s": measured["wall_s"],
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join([*RUNS, *AUDITS]))
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file, one row a case")
    args = parser.parse_args(arguments)
    old = json.loads(args.out.read_text())["cases"] if args.out.exists() else []
    rows = {row["case"]: row for row in old}
    for case in args.cases.split(","):
        rows[case] = row = measure(case)
        sys.stdout.write(f"{case}: {row['plan']['peak_mb']:,.0f} {row['measured_mb']:,.0f} MB\n")
        sys.stdout.flush()
        ratios = [row["ratio"] for row in rows.values()]
        about = {"least_ratio": min(ratios), "most_ratio": max(ratios), **describe()}
        order = [rows[name] for name in [*RUNS, *AUDITS] if name in rows]
        write_results(args.out, {"cases": order, **about})
    return int(any(row["ratio"] < 1 for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
