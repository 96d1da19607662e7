"""Where the time goes: processor seconds, arithmetic and share of the peak, by part.

`default` is the README's first command, `audit` that of a ViT-S with random weights on images of
224 pixels under two attacks, `study` one of four runs. Each is a process with one thread of torch
on one core, hooked from outside (`_parts.py`). The peak is that of a product of two matrices or of
a large convolution, whichever is faster, in the same instructions. `--isa avx2` holds torch and its
libraries to AVX2, as a processor without AVX-512 would; the file keeps what was measured in other
instructions, and so both.

    python research/measurements/where.py [--cases default,audit,study] [--isa native] [--seed 0]
        [--images 8] [--out research/results/where.json]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _images import write_images
from _process import measure_process  # beside this script

from fedmia.runtime.environment import describe

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "where.json"
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}  # fmt: skip
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
SIZE, KNOWN = 224, 4
CASES = ("default", "audit", "study")
PEAK = """
import time, torch
torch.set_num_threads(1)
a, x, w = torch.rand(1024, 1024), torch.rand(32, 64, 32, 32), torch.rand(64, 64, 3, 3)
work = {
    2 * 1024**3: lambda: a @ a,
    2 * 32 * 32**2 * 64 * 64 * 9: lambda: torch.conv2d(x, w, padding=1),
}
best = 0.0
for flop, call in work.items():
    for _ in range(40):
        began = time.thread_time()
        call()
        best = max(best, flop / (time.thread_time() - began) / 1e9)
print(torch.backends.cpu.get_cpu_capability(), best)
"""


def command(case: str, seed: int, images: int, folder: Path) -> str:
    """Module and flags of a case."""
    out = f"--quiet --out {folder / 'OUT'} --seed {seed}"
    if case == "default":
        return f"fedmia.simulate --clients 10 --attacker active {out}"
    if case == "audit":
        sides = write_images(folder, images + KNOWN, SIZE)
        return (
            f"fedmia.audit --encoder timm:vit_small_patch16_224 --size {SIZE} {sides} --known "
            f"{KNOWN} --limit {images} --attacks similarity,partcrop --threads 1 {out}"
        )
    return (
        "fedmia.study.__main__ --attacks combined,similarity,internal --defenses gaussian "
        "--strengths gaussian=0.1 --split.members 144 --split.public 144 --seeds 2 --jobs 1 "
        f"--quiet --out {folder / 'OUT'}"
    )


def by_part(files: Sequence[Path], peak: float) -> dict[str, Any]:
    """The rows of all processes of a case added up, the longest first."""
    added: dict[tuple[str, str], dict[str, float]] = {}
    for file in files:
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            sums = added.setdefault((row["part"], row["work"]), {})
            for name in ("cpu_s", "calls", "images", "gflop"):
                sums[name] = sums.get(name, 0) + row[name]
    rows = [
        {"part": part, "work": work, **sums,
         "share_of_peak": sums["gflop"] / peak / max(sums["cpu_s"], 1e-9)}
        for (part, work), sums in sorted(added.items(), key=lambda one: -one[1]["cpu_s"])
    ]  # fmt: skip
    total = sum(row["cpu_s"] for row in rows)
    gflop = sum(row["gflop"] for row in rows)
    return {"cpu_s": total, "gflop": gflop, "least_s": gflop / peak, "rows": rows}


def measure(case: str, seed: int, images: int, more: Mapping[str, str]) -> dict[str, Any]:
    """One case in the instructions of the environment `more`."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text = folder / "peak.txt"
        program = f"import sys; sys.stdout = open({str(text)!r}, 'w')\n{PEAK}"
        measure_process([sys.executable, "-c", program], more)
        isa, peak = text.read_text(encoding="utf-8").split()
        flags = shlex.split(command(case, seed, images, folder))
        parts = folder / "parts.json"
        whole = measure_process(
            [sys.executable, str(HERE / "_parts.py"), str(parts), *flags], {**ONE_THREAD, **more}
        )
        files = sorted(folder.glob("parts.json*"))
        split = by_part(files, float(peak))
    command_line = " ".join(flags).replace(place, "DIR")
    return {"isa": isa, "command": command_line, "peak_gflops": float(peak), **whole, **split}


def table(case: str, result: Mapping[str, Any], most: int = 25) -> str:
    """The longest parts, for the eye."""
    lines = [
        f"{case}, {result['isa']}: {result['cpu_s']:.1f} processor s, {result['gflop']:.0f} GFLOP, "
        f"{result['least_s']:.1f} s at the peak of {result['peak_gflops']:.0f} GFLOP/s",
        f"{'part':42}{'work':11}{'s':>8}{'calls':>8}{'images':>10}{'GFLOP':>8}{'of peak':>8}",
    ]
    for row in result["rows"][:most]:
        lines.append(
            f"{row['part']:42}{row['work']:11}{row['cpu_s']:8.2f}{row['calls']:8}"
            f"{row['images']:10}{row['gflop']:8.1f}{row['share_of_peak']:8.2f}"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--isa", choices=("native", "avx2"), default="native")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=8, help="scored a side in the audit")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    args = parser.parse_args(arguments)
    known = json.loads(args.out.read_text())["cases"] if args.out.exists() else {}
    if hasattr(os, "sched_setaffinity"):  # so clients and attacks come one after the other
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    for case in args.cases.split(","):
        result = measure(case, args.seed, args.images, AVX2 if args.isa == "avx2" else {})
        known.setdefault(case, {})[result["isa"]] = result
        sys.stdout.write(table(case, result))
        sys.stdout.flush()
        args.out.write_text(json.dumps({"cases": known, **describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
