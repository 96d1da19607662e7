"""Batched augmentation against torchvision image by image, and against a ResNet-18 forward pass.

All are timed in one run on the same images, so the ratios hold though the seconds do not travel.

    python benchmarks/augment.py [--out FILE.json] [--device cpu] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torchvision
from torch import Tensor
from torchvision.transforms import v2

from fedmia.nets.base import initialise
from fedmia.nets.resnet import ResNet18
from fedmia.ssl.augment import Augment

# batch, channels, side; how many images torchvision and the net are timed on
CASES = ((16, 1, 8, 16), (16, 3, 32, 16), (512, 3, 32, 64))
RECIPE = Augment(hue=0.1, blur_p=0.5)  # MoCo v2


def torchvision_recipe(recipe: Augment, channels: int, side: int) -> Callable[[Tensor], Tensor]:
    """The same recipe, for one image."""
    jitter = v2.ColorJitter(recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue)
    taps = max(3, int(0.1 * side) | 1)
    blur = v2.GaussianBlur(taps, (recipe.blur_sigma_min, recipe.blur_sigma_max))
    composed: Callable[[Tensor], Tensor] = v2.Compose(
        [
            v2.RandomResizedCrop(side, (recipe.crop_min, recipe.crop_max)),
            v2.RandomApply([jitter], recipe.jitter_p),
            v2.RandomGrayscale(recipe.gray_p),
            v2.RandomApply([blur], recipe.blur_p),
            v2.RandomHorizontalFlip(recipe.flip),
        ]
    )
    return composed


def best_of(call: Callable[[], object], device: torch.device, budget: float = 0.8) -> float:
    """Least seconds of a call over at least 3 and at most 200 runs, after one that warms up."""
    call()
    best, spent, runs = float("inf"), 0.0, 0
    while runs < 3 or (spent < budget and runs < 200):
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - started
        best, spent, runs = min(best, seconds), spent + seconds, runs + 1
    return best


@torch.no_grad()
def measure(
    batch: int, channels: int, side: int, few: int, device: torch.device
) -> dict[str, float]:
    """Microseconds an image of the three, and the two ratios."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(batch, channels, side, side, generator=generator).to(device)
    u = torch.rand(batch, RECIPE.draws, generator=generator).to(device)
    single = torchvision_recipe(RECIPE, channels, side)
    net = ResNet18().build(channels, max(side, 32))
    initialise(net, generator)
    net = net.to(device).eval()
    # ResNet-18 takes no images below 9 pixels.
    grown = torch.nn.functional.interpolate(x[:few], size=(max(side, 32),) * 2)
    ours = best_of(lambda: RECIPE(x, u), device) / batch
    theirs = best_of(lambda: [single(image) for image in x[:few]], device) / few
    forward = best_of(lambda: net(grown), device) / few
    return {
        "batch": batch,
        "channels": channels,
        "side": side,
        "fedmia_us": ours * 1e6,
        "torchvision_us": theirs * 1e6,
        "resnet18_us": forward * 1e6,
        "speed_up": theirs / ours,
        "part_of_forward": ours / forward,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)  # torchvision draws from the global generator
    rows = [measure(*case, torch.device(args.device)) for case in CASES]
    lines = ["microseconds an image     fedmia  torchvision  ResNet-18   faster  of a forward"]
    for r in rows:
        what = f"{r['batch']} x {r['channels']} x {r['side']} x {r['side']}"
        lines.append(
            f"{what:22}{r['fedmia_us']:10.1f}{r['torchvision_us']:13.1f}{r['resnet18_us']:11.1f}"
            f"{r['speed_up']:8.1f}x{r['part_of_forward']:14.1%}"
        )
    sys.stdout.write("\n".join(lines) + "\n")
    if args.out:
        versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
        where = {"device": args.device, "threads": args.threads, "machine": platform.machine()}
        args.out.write_text(json.dumps({**versions, **where, "cases": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
