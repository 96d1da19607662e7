"""PartCrop's responses against the bare forward passes of the same pixels, on a ResNet-18.

Both are timed in turn in one run, so the ratio holds though the seconds do not travel. The rest is
what PartCrop adds to the passes: drawing the crops, their dot products, and the cache.

    python benchmarks/partcrop.py [--images 8] [--crops 128] [--side 32] [--device cpu]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from fedmia.attacks._partcrop import sorted_energies
from fedmia.attacks.partcrop import Crops
from fedmia.nets.base import initialise
from fedmia.nets.resnet18 import ResNet18
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import BlackBox

RUNS = 5


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Processor seconds on the CPU, so that other programs count less; else seconds passed."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    started = clock()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - started


@torch.no_grad()
def measure(images: int, crops: int, side: int, device: torch.device) -> dict[str, float]:
    """Least seconds over RUNS of the responses, the bare passes and the energies."""
    generator = torch.Generator().manual_seed(0)
    backbone = ResNet18().build(3, side)
    initialise(backbone, generator)
    encoder = Encoder(backbone, nn.Identity(), (0.5,) * 3, (0.25,) * 3).to(device).eval()
    spec = MoCo(dim=backbone.width, queue=16, temperature=0.2)
    method = MomentumContrast(encoder, spec, 16, generator).to(device)
    shape = (images, 3, side, side)
    x = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    recipe = Crops()
    height, width = recipe.pixels(side, side)
    whole = x.to(device).float() / 255
    cut = torch.rand(images * crops, 3, height, width, generator=generator).to(device)

    def responses() -> torch.Tensor:
        view = BlackBox(method, Augment(), seed=0, device=device)  # knows no row yet
        return view.responses(x, recipe, crops)

    def bare() -> None:
        encoder.features(whole, ["avgpool"])
        for part in cut.split(2048):
            encoder.features(part, ["avgpool"])

    found = responses()
    bare()
    timed = [(seconds(responses, device), seconds(bare, device)) for _ in range(RUNS)]
    ours, passes = (min(column) for column in zip(*timed, strict=True))
    extra = min(seconds(lambda: sorted_energies(found, x, 0, "both"), device) for _ in range(RUNS))
    return {
        "images": images,
        "crops": crops,
        "side": side,
        "responses_s": ours,
        "passes_s": passes,
        "energies_s": extra,
        "ratio": ours / passes,
        "ratio_with_energies": (ours + extra) / passes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--crops", type=int, default=128, help="crops an image")
    parser.add_argument("--side", type=int, default=32, help="pixels a side of an image")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    row = measure(args.images, args.crops, args.side, torch.device(args.device))
    row |= {"torch": torch.__version__, "device": args.device, "threads": args.threads}
    sys.stdout.write(json.dumps(row, indent=2) + "\n")


if __name__ == "__main__":
    main()
