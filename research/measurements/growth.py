"""What grows with what: seconds and peak memory against clients, images scored, weights, rounds,
attacks and updates kept; and what many clients cost beside few.

Each run is a process of its own, from its start to its report. Along an axis one quantity grows by
the same factor from point to point, all else stays. Of three points the last difference over the
first is the factor to the power of the exponent, whatever a run costs that does not grow. Where
memory or time grows by less than FLAT over the whole axis, no exponent is said. `room` is how many
times larger the quantity may become until a run needs MEMORY or TIME, by what the last step cost a
unit; the term with the least room binds next.

The pairs are run in turns, so that what else runs on the machine slows both. Seconds are those of
the process's own (`cpu_s`), and of the clock (`wall_s`).

    python research/measurements/growth.py [--axes clients,images,..]
        [--pairs cross-device,small-clients] [--turns 1] [--backend inline]
        [--out research/results/growth.json]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _process import measure_process  # beside this script

from fedmia.runtime.environment import describe
from fedmia.settings import registry
from fedmia.storage.runfolder import RunFolder

RESULTS = Path(__file__).parents[1] / "results" / "growth.json"
FLAT = 0.05
MEMORY, TIME = 16 * 1024, 24 * 3600.0  # MiB and seconds of a run that is still convenient
EVERY = (
    "--data.pixels 8 --dataset synthetic --partition iid --device cpu --train.local_epochs 1 "
    "--train.batch_size 32 --attack.similarity.views 4 --federation.snapshots 1 "
    "--federation.placebo false --split.test 200 --quiet"
)
BASE: dict[str, Any] = {
    "clients": 4, "members": 600, "nonmembers": 540, "scored": 500, "participation": 1.0,
    "rounds": 2, "width": 4, "attacks": "similarity",
}  # fmt: skip
KEPT = {"attacker": "server", "attacks": "similarity,all-for-one", "rounds": 32, "members": 840}
AXES: Mapping[str, Sequence[dict[str, Any]]] = {
    "clients": [
        {"clients": n, "members": 2 * n, "participation": 20 / n} for n in (6_250, 25_000, 100_000)
    ],
    "images": [
        {"members": n + 100, "scored": n, "nonmembers": n + 40} for n in (2_000, 8_000, 32_000)
    ],
    "weights": [{"width": n} for n in (32, 64, 128)],
    "rounds": [{"rounds": n} for n in (8, 32, 128)],
    "attacks": [
        {"attacks": names}
        for names in (
            "similarity", "similarity,lpla", "similarity,lpla,variance-only,combined"
        )
    ],
    "updates": [{**KEPT, "keep": n} for n in (2, 8, 32)],
}  # fmt: skip
PAIRS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # 100 clients of 22 images train in both, a step each; 2,000 of the members are scored.
    "cross-device": (
        {"clients": 100_000, "members": 200_000, "participation": 0.001, "rounds": 20},
        {"clients": 100, "members": 2_200, "pool": 202_440, "rounds": 20},
    ),
    "small-clients": (
        {"clients": 1_000, "members": 4_040, "scored": 4_000, "rounds": 3},
        {"clients": 10, "members": 4_040, "scored": 4_000, "rounds": 3},
    ),
}
SCORED = {"cross-device": {"scored": 2_000, "nonmembers": 2_040}, "small-clients": {}}


def run(point: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """One run: seconds and peak memory of its process, and seconds by part.

    Args:
        point: what differs from BASE.
        backend: where clients train.

    Returns:
        What was measured; `start_s` is what passes before the first round.

    Raises:
        RuntimeError: the run failed; holds what it printed.
    """
    own = {**BASE, **point}
    images = own.get("pool", own["members"] + own["nonmembers"] + 400)
    flags = (
        f"{EVERY} --backend {backend} --clients {own['clients']} --rounds {own['rounds']} "
        f"--federation.participation {own['participation']} --data.images {images} "
        f"--split.members {own['members']} --split.nonmembers {own['nonmembers']} "
        f"--split.scored {own['scored']} --split.known 40 --model.width {own['width']} "
        f"--attacks {own['attacks']} --attacker {own.get('attacker', 'none')}"
    )
    if "keep" in own:
        flags += f" --federation.keep_updates {own['keep']}"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "RUN"
        command = [sys.executable, "-m", "fedmia.simulate", *flags.split(), "--out", str(out)]
        measured = measure_process(command)
        report = RunFolder(out).report()
        sizes = {n: (out / n).stat().st_size for n in ("report.json", "report.html", "table.csv")}
        folder_bytes = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    timing = report.timing
    parts = {k: v for k, v in timing.items() if k != "total_s" and isinstance(v, float)}
    return {
        **point, **measured, "parts": parts, "start_s": timing["import"] + timing["data"],
        "folder_mb": folder_bytes / 1e6, "bytes": sizes, "clients_listed": len(report.clients),
    }  # fmt: skip


def sizes_of(axis: str, points: Sequence[Mapping[str, Any]]) -> list[float]:
    """The quantity that grows along an axis, at each of its points."""
    if axis == "weights":
        nets = [registry.build("model", "smallnet", {"width": p["width"]}) for p in points]
        return [float(sum(w.numel() for w in net.build(3, 8).parameters())) for net in nets]
    if axis == "attacks":
        return [float(p["attacks"].count(",") + 1) for p in points]
    name = {"images": "scored", "updates": "keep"}.get(axis, axis)
    return [float(p[name]) for p in points]


def fit(sizes: Sequence[float], costs: Sequence[float], limit: float) -> dict[str, float | None]:
    """The exponent of what grows, what a unit more costs, and the room that is left.

    Args:
        sizes: three sizes, each the same factor larger than the one before.
        costs: of a run at each.
        limit: the largest convenient cost.

    Returns:
        `exponent`, None where the costs hardly grow or do so too unevenly; `a_unit`: cost of one
        more at the last step; `room`: factor on the last size until the limit, None: none in sight.
    """
    first, last = costs[1] - costs[0], costs[2] - costs[1]
    a_unit = last / (sizes[2] - sizes[1])
    if first <= 0 or last <= 0 or costs[2] - costs[0] < FLAT * costs[0]:
        return {"exponent": None, "a_unit": a_unit, "room": None}
    exponent = math.log(last / first) / math.log(sizes[2] / sizes[1])
    return {
        "exponent": exponent, "a_unit": a_unit,
        "room": 1 + max(0.0, limit - costs[2]) / (a_unit * sizes[2]),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--axes", default=",".join(AXES), help="axes to measure, or none")
    parser.add_argument("--pairs", default=",".join(PAIRS), help="pairs to measure, or none")
    parser.add_argument("--turns", type=int, default=1, help="runs of each side of a pair")
    parser.add_argument("--backend", default="inline")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    old = json.loads(args.out.read_text(encoding="utf-8")) if args.out.is_file() else {}
    axes, pairs = dict(old.get("axes", {})), dict(old.get("pairs", {}))

    def write() -> None:
        rooms = {
            f"{cost} by {axis}": one[cost]["room"]
            for axis, one in axes.items() for cost in ("memory", "time") if one[cost]["room"]
        }  # fmt: skip
        limits = {"flags": EVERY, "base": BASE, "memory_mib": MEMORY, "time_s": TIME, "flat": FLAT}
        binds = min(rooms, key=lambda n: rooms[n]) if rooms else None
        results = {"setting": limits, "pairs": pairs, "axes": axes, "binds_next": binds}
        args.out.write_text(json.dumps(results | describe(), indent=1) + "\n", encoding="utf-8")

    for name in (n for n in args.pairs.split(",") if n != "none"):
        sides: tuple[list[dict[str, Any]], ...] = ([], [])
        for _ in range(args.turns):
            for side, point in zip(sides, PAIRS[name], strict=True):
                side.append(run({**SCORED[name], **point}, args.backend))
        best = [{k: min(r[k] for r in s) for k in ("wall_s", "cpu_s", "peak_mib")} for s in sides]
        turns = PAIRS[name][0]["rounds"] * (
            PAIRS[name][0].get("participation", 1.0) * PAIRS[name][0]["clients"]
        )
        key = name if args.backend == "inline" else f"{name} on {args.backend}"
        if capability := os.environ.get(
            "ATEN_CPU_CAPABILITY"
        ):  # to fewer instructions than there are
            key += f" in {capability}"
        pairs[key] = {
            "backend": args.backend, "many": sides[0], "few": sides[1],
            "ratio": {k: best[0][k] / best[1][k] for k in best[0]},
            "ms_a_client_and_round": {k: 1000 * best[0][k] / turns for k in ("wall_s", "cpu_s")},
            **describe(),
        }  # fmt: skip
        sys.stdout.write(f"{key}: {pairs[key]['ratio']}\n")
        sys.stdout.flush()
        write()
    for axis in (a for a in args.axes.split(",") if a != "none"):
        runs = [run(point, args.backend) for point in AXES[axis]]
        sizes = sizes_of(axis, AXES[axis])
        axes[axis] = {
            "sizes": sizes, "runs": runs,
            "memory": fit(sizes, [r["peak_mib"] for r in runs], MEMORY),
            "time": fit(sizes, [r["cpu_s"] for r in runs], TIME),
        }  # fmt: skip
        sys.stdout.write(f"{axis}: {axes[axis]['memory']}, {axes[axis]['time']}\n")
        sys.stdout.flush()
        write()


if __name__ == "__main__":
    main()
