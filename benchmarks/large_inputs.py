"""Peak memory of an audit of large images, over that of the encoder itself.

A vision transformer of timm with random weights is audited by PartCrop and by EncoderMI-T, whose
shadow encoders are given, on images of its own size in folders. Beside it a process that loads the
same encoder and embeds one image. Both are whole processes, measured by their largest resident set.
The exit code is 1 where an audit takes more than 2 GiB over the encoder.

    python benchmarks/large_inputs.py [--model vit_small_patch14_dinov2] [--images 32] [--known 8]
        [--views 10] [--crops 128] [--threads 2] [--device cpu] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _process import measure_process  # beside this script
from PIL import Image

from fedmia.runtime.cores import count_cores
from fedmia.runtime.environment import describe, version
from fedmia.storage.json_rows import to_json
from fedmia.storage.runfolder import RunFolder

RESULTS = Path(__file__).parent / "results" / "large_inputs.json"
BOUND = 2048  # MiB over the encoder itself
SHADOWS = (
    "--encoder torchvision:squeezenet1_1 --size 64 --attacks encodermi-t --shadows 2 "
    "--shadow.size 32 --shadow.epochs 1 "
    "--shadow.knowledge data --shadow.model smallnet"
)
ALONE = """
import sys, torch
from fedmia.encoders.base import load
torch.set_num_threads(int(sys.argv[3]))
size = int(sys.argv[4])
encoder = load(sys.argv[1], device=sys.argv[2], size=size).method.encoder
with torch.no_grad():
    encoder(torch.rand(1, 3, size, size, device=sys.argv[2]))
"""


def write_images(folder: Path, count: int, size: int) -> str:
    """Two folders of `count` images each, smooth noise, and the flags that name them."""
    generator, flags = np.random.default_rng(0), ""
    for side in ("members", "nonmembers"):
        (folder / side).mkdir()
        for i in range(count):
            blocks = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            image = Image.fromarray(blocks).resize((size, size), Image.Resampling.BILINEAR)
            image.save(folder / side / f"{i}.png")
        flags += f"--{side} folder:{folder / side} "
    return flags


def audit(flags: str, threads: int, out: Path) -> dict[str, float]:
    """A whole audit: seconds and peak memory in MiB."""
    command = [sys.executable, "-m", "fedmia.audit", *shlex.split(flags)]
    return measure_process([*command, "--threads", str(threads), "--out", str(out), "--quiet"])


def case(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One encoder alone and under audit."""
    images = write_images(folder, args.images + args.known, args.size)
    common = f"{images} --known {args.known} --limit {args.images}"
    shadows = f"{images} --known {args.known} {SHADOWS} --cache {folder}/shadows "
    shadows += f"--shadow.images {max(2, args.images // 8)}"
    audit(shadows, args.threads, folder / "shadows-audit")
    spec = f"timm:{args.model}"
    device = [args.device, str(args.threads), str(args.size)]
    alone = measure_process([sys.executable, "-c", ALONE, spec, *device])
    flags = (
        f"{common} --encoder {spec} --size {args.size} --attacks partcrop,encodermi-t "
        f"--shadow-encoders {folder}/shadows --attack.encodermi-t.views {args.views} "
        f"--attack.partcrop.crops {args.crops} --device {args.device}"
    )
    whole = audit(flags, args.threads, folder / "audit")
    report = RunFolder(folder / "audit").report()
    if report.not_run:
        sys.exit("; ".join(f"{attack}: {reason}" for attack, reason in report.not_run.items()))
    return {
        "model": args.model, "size": args.size, "images_a_side": args.images,
        "known_a_side": args.known, "views": args.views, "crops": args.crops,
        "attacks": [a.name for a in report.attacks], "encoder": to_json(report.encoder, exact=True),
        "alone": alone, "audit": whole, "over_mib": whole["peak_mib"] - alone["peak_mib"],
        "bound_mib": BOUND,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="vit_small_patch14_dinov2", help="of timm")
    parser.add_argument("--size", type=int, default=518, help="pixels a side")
    parser.add_argument("--images", type=int, default=32, help="scored a side")
    parser.add_argument("--known", type=int, default=8, help="known a side")
    parser.add_argument("--views", type=int, default=10, help="of EncoderMI-T, an image")
    parser.add_argument("--crops", type=int, default=128, help="of PartCrop, an image")
    parser.add_argument("--threads", type=int, default=count_cores(), help="of torch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file, one row a model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = case(args, Path(folder))
    known = json.loads(args.out.read_text())["cases"] if args.out.exists() else {}
    cases = known | {args.model: row}
    record = {"cases": cases, "timm": version("timm"), **describe()}
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    sys.stdout.write(f"{args.model}: {row['over_mib']:.0f} MiB over the encoder\n")
    return int(row["over_mib"] > BOUND)


if __name__ == "__main__":
    sys.exit(main())
