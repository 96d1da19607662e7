"""Signals of attacks: what sharing them saves, what they cost beside the bare forward passes, and
how much faster they are than a loop over images.

Everything is timed in turn in one run, so the ratios hold though the seconds do not travel. On a
CPU they are the process's own seconds: what else runs there counts for less.

    python benchmarks/signals.py [--net resnet18 --size 32] [--images 6] [--repeats 3]
        [--device cpu] [--threads 1] [--precision float32] [--out benchmarks/results/signals.json]

Without --net a ResNet-18 at 32 pixels and a SmallNet at 8 are measured, one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from _bench import KNOWN, Bench, Timed, attacks, seconds  # beside this script
from torch import Tensor
from torchvision.transforms import v2

from fedmia.attacks.partcrop import Crops
from fedmia.options import registry
from fedmia.runtime.environment import describe
from fedmia.ssl.augment import Augment
from fedmia.threat import PRECISIONS, ViewRecipe
from fedmia.threat.signals import PixelCache, Signals

RESULTS = Path(__file__).parent / "results" / "signals.json"
CASES = (("resnet18", 32, 6, 3), ("smallnet", 8, 64, 9))  # net, side, images scored, repeats
NAIVE = 4  # images that the loop is timed on


def measure_attacks(bench: Bench, repeats: int) -> dict[str, Any]:
    """Each attack's signal beside its bare passes; all of them alone, and sharing their rows."""
    chosen = attacks()
    passes = {name: bench.passes(name) for name in chosen}
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in chosen}
    queries: dict[str, tuple[int, int]] = {}
    for _ in range(repeats):
        signals, pixels = Signals(), PixelCache()
        for name in chosen:
            alone, beside = bench.view(), bench.view(signals, pixels)
            whole, own = bench.run(name, alone)
            bare = bench.bare(*passes[name])
            shared, _ = bench.run(name, beside)
            queries[name] = alone.queries, beside.queries
            rows[name].append((whole, shared, own, bare, own / bare))
    results = {}
    for name in chosen:
        whole, shared, own, bare, ratio = (median(c) for c in zip(*rows[name], strict=True))
        results[name] = {
            "passes": [{"images": count, "side": side} for count, side in passes[name][0]],
            "gradients": sum(count for count, _ in passes[name][1]),
            "queries": queries[name][0], "queries_sharing": queries[name][1],
            "alone_s": whole, "shared_s": shared,
            "extraction_s": own, "bare_s": bare, "ratio": ratio,
        }  # fmt: skip
    plain = [name for name in chosen if not registry.load("attack", name).uses_shadows]
    sharing = {"without_shadows": _sharing(results, plain), "all": _sharing(results, chosen)}
    same = all(one == other for one, other in queries.values())
    return {"attacks": results, "sharing": sharing | {"same_queries": same}}


def _sharing(results: dict[str, dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """Seconds of `names` alone and sharing. Those that train shadows come last, so the others' rows
    are shared among themselves only; the shadows' training and their own passes are left out."""
    alone, shared = (sum(results[n][k] for n in names) for k in ("alone_s", "shared_s"))
    return {"attacks": names, "alone_s": alone, "shared_s": shared, "ratio": shared / alone}


def against_loops(case: dict[str, Any], side: int) -> dict[str, float]:
    """Every attack's passes in loops over images, one attack after the other, beside all of them
    batched and sharing rows. Seconds; passes of a full side are taken for views, others for crops;
    those of the known images and the shadows' are left out of both."""
    loop = {kind: row["loop_us"] / 1e6 for kind, row in case["loop"].items()}
    looped = sum(
        part["images"] * loop["views" if part["side"] == side else "crops"]
        for row in case["attacks"].values()
        for part in row["passes"]
    )
    share = case["sharing"]["all"]["ratio"]
    ours = share * sum(row["extraction_s"] for row in case["attacks"].values())
    return {"loops_s": looped, "shared_s": ours, "faster": looped / ours}


def torchvision_recipe(recipe: Augment, side: int) -> Callable[[Tensor], Tensor]:
    """The same recipe, for one image."""
    jitter = v2.ColorJitter(recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue)
    taps = max(3, int(0.1 * side) | 1)
    blur = v2.GaussianBlur(taps, (recipe.blur_sigma_min, recipe.blur_sigma_max))
    crop = v2.RandomResizedCrop(side, (recipe.crop_min, recipe.crop_max))
    jittered = v2.RandomApply([jitter], recipe.jitter_p)
    blurred = v2.RandomApply([blur], recipe.blur_p)
    gray, flip = v2.RandomGrayscale(recipe.gray_p), v2.RandomHorizontalFlip(recipe.flip)
    return v2.Compose([crop, jittered, gray, blurred, flip])


def single_crop(recipe: Crops, side: int) -> Callable[[Tensor], Tensor]:
    """A crop of torchvision, of one image."""
    area, ratio = (recipe.scale_min, recipe.scale_max), (recipe.ratio_min, recipe.ratio_max)
    cut = v2.RandomResizedCrop(recipe.pixels(side, side), area, ratio)
    return v2.Compose([cut, v2.RandomHorizontalFlip(recipe.flip)])


Loop = tuple[Callable[[Tensor], Tensor], int, Callable[[Timed], Tensor], ViewRecipe]


@torch.no_grad()
def measure_loop(bench: Bench, repeats: int, views: int = 24, crops: int = 128) -> dict[str, Any]:
    """The loop that a user would write, a view and a forward pass an image, beside the views."""
    side = bench.images.shape[-1]
    cases: dict[str, Loop] = {
        "views": (torchvision_recipe(bench.augment, side), views,
                  lambda v: v.embed_views(bench.images, views), bench.augment),
        "crops": (single_crop(Crops(), side), crops,
                  lambda v: v.responses(bench.images, Crops(), crops), Crops()),
    }  # fmt: skip
    results = {}
    for kind, case in cases.items():
        rows = [_loop_turn(bench, *case) for _ in range(repeats)]
        draw, our_draw, loop, ours = (median(c) * 1e6 for c in zip(*rows, strict=True))
        results[kind] = {
            "loop_pixels_us": draw, "pixels_us": our_draw, "pixels_faster": draw / our_draw,
            "loop_us": loop, "us": ours, "faster": loop / ours,
        }  # fmt: skip
    return results


def _loop_turn(
    bench: Bench, single: Callable[[Tensor], Tensor], count: int,
    ask: Callable[[Timed], Tensor], recipe: ViewRecipe,
) -> tuple[float, ...]:  # fmt: skip
    """Seconds a view: of the loop's pixels and ours, of the loop whole and ours."""
    few = bench.images[:NAIVE].to(bench.device).float() / 255
    encoder, times = bench.method.encoder, max(1, count // 8)  # of the loop, enough to time
    draw = seconds(lambda: [single(x) for x in few for _ in range(times)], bench.device)
    loop = seconds(
        lambda: [encoder(single(x)[None]) for x in few for _ in range(times)], bench.device
    )
    fresh = bench.view(pixels=PixelCache(limit=0))
    ours = seconds(lambda: ask(fresh), bench.device)
    our_draw = seconds(lambda: fresh.view_pixels(bench.images, count, recipe), bench.device)
    theirs, own = len(few) * times, len(bench.images) * count
    return draw / theirs, our_draw / own, loop / theirs, ours / own


def table(name: str, case: dict[str, Any]) -> str:
    """What was measured, for the eye."""
    lines = [f"{name}: attack, seconds of its signal, of the bare passes, ratio"]
    for attack, row in case["attacks"].items():
        times = f"{row['extraction_s']:9.4f}{row['bare_s']:9.4f}"
        lines.append(f"  {attack:15}{times}{row['ratio']:7.3f}")
    for which in ("without_shadows", "all"):
        row = case["sharing"][which]
        lines.append(f"  shared / alone, {which}: {row['ratio']:.3f} of {row['alone_s']:.2f} s")
    lines.append(f"  the same queries: {case['sharing']['same_queries']}")
    for kind, row in case["loop"].items():
        less = f"{row['pixels_faster']:.1f} without the encoder"
        lines.append(f"  {kind}: {row['faster']:.1f} times faster than a loop, {less}")
    lines.append(f"  all attacks: {case['all_attacks']['faster']:.1f} times faster than loops")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", help="one encoder only, with --size")
    parser.add_argument("--size", type=int, default=32, help="pixels a side, with --net")
    parser.add_argument("--images", type=int, help="images that are scored")
    parser.add_argument("--repeats", type=int, help="of which the medians are taken")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32",
                        help="of our passes; the loop's is float32")  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)  # torchvision draws from the global generator
    cases = CASES if args.net is None else ((args.net, args.size, *CASES[0][2:]),)
    results = {}
    for net, size, images, repeats in cases:
        turns = args.repeats or repeats
        device = torch.device(args.device)
        bench = Bench.of(net, size, args.images or images, device, args.precision)
        name = f"{net}-{size}"
        results[name] = {"images": len(bench.images), "known": 2 * KNOWN, "repeats": turns}
        results[name] |= measure_attacks(bench, turns)
        results[name]["loop"] = measure_loop(bench, turns)
        results[name]["all_attacks"] = against_loops(results[name], size)
        sys.stdout.write(table(name, results[name]))
        sys.stdout.flush()
    where = {"device": args.device, "threads": args.threads, "precision": args.precision}
    args.out.write_text(json.dumps({"cases": results, **where, **describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
