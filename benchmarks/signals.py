"""Signals of attacks: what sharing them saves, what they cost beside the bare forward passes, and
how much faster they are than a loop over images.

Everything is timed in turn in one run, so the ratios hold though the seconds do not travel.

    python benchmarks/signals.py [--net resnet18 --size 32] [--images 8] [--repeats 3]
        [--device cpu] [--threads 1] [--out benchmarks/results/signals.json]

Without --net a ResNet-18 at 32 pixels and a SmallNet at 8 are measured, one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torchvision.transforms import v2

from fedmia import registry
from fedmia.attacks._crops import Crops
from fedmia.attacks.base import Attack, Known
from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.environment import describe
from fedmia.seeding import rng, torch_rng
from fedmia.signals import PixelCache, Signals
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder, Recipe, SSLMethod
from fedmia.ssl.mocov2 import MoCoV2
from fedmia.threat import Threat, Views, WhiteBox

RESULTS = Path(__file__).parent / "results" / "signals.json"
CASES = (("resnet18", 32, 8), ("smallnet", 8, 64))  # net, side, images scored
KNOWN = 3  # images a side: the least that every attack fits on
CALLS = ("embed_plain", "embed_views", "responses", "features", "losses", "views_and_losses")
HOLDS = Threat("white_box", "outsider")
# It trains copies of the model and reads their losses: its passes are no signal of the model.
TRAINS = ("ascent-static",)
# An attack's own network is trained outside of what is timed, so hardly at all.
BRIEF = {"epochs": 1, "steps": 1}
NAIVE = 4  # images that the loop is timed on


def _timed(name: str) -> Callable[..., Any]:
    def call(self: Timed, *args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        found = getattr(WhiteBox, name)(self, *args, **options)
        self.seconds += _now(self.device) - began
        return found

    return call


class Timed(WhiteBox):
    """A view that sums up the seconds spent in its answers."""

    seconds: float = 0.0


for _name in CALLS:
    setattr(Timed, _name, _timed(_name))


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call."""
    began = _now(device)
    call()
    return _now(device) - began


def attacks() -> dict[str, dict[str, object]]:
    """Attacks that can do without shadows, and the option that makes them; the others first."""
    plain, told = {}, {}
    for name in registry.names("attack"):
        cls = registry.load("attack", name)
        if not HOLDS.covers(cls.needs) or name in TRAINS:
            continue
        if not cls.uses_shadows:
            plain[name] = {}
        elif any(f.name == "fit_on" for f in fields(cls)):
            told[name] = {"fit_on": "known"}
    return plain | told


@dataclass
class Bench:
    """One encoder, untrained, and the images that attacks are timed on."""

    method: SSLMethod
    augment: Augment
    images: Tensor
    known: Known
    device: torch.device

    @classmethod
    def of(cls, net: str, size: int, images: int, device: torch.device) -> Bench:
        spec = MoCoV2()
        backbone = registry.build("model", net, {}).build(3, size)
        method = spec.build(backbone, Recipe((0.5,) * 3, (0.25,) * 3), torch_rng(0, "signals"))
        source = Synthetic(images=max(10, images + 2 * KNOWN), pixels=size)
        drawn = torch.from_numpy(source.load(Request(None, None, None, 0)).images)
        known = Known(drawn[:KNOWN], drawn[KNOWN : 2 * KNOWN])
        chosen = drawn[2 * KNOWN : 2 * KNOWN + images]
        return cls(method.to(device).eval(), spec.augment, chosen, known, device)

    def view(self, signals: Signals, pixels: PixelCache) -> Timed:
        """A view as the audit gives it, which shares its rows and pixels with others."""
        return Timed(
            self.method,
            self.augment,
            seed=0,
            device=self.device,
            held=self.known.both()[0],
            signals=signals,
            pixels=pixels,
        )

    def build(self, name: str, options: dict[str, object]) -> Attack:
        known = {f.name for f in fields(registry.load("attack", name))}
        brief = {k: v for k, v in BRIEF.items() if k in known}
        built: Attack = registry.build("attack", name, brief | options)
        return built

    def passes(self, name: str, options: dict[str, object]) -> list[tuple[int, int]]:
        """(images, side) of what one `score` sends through the encoder."""
        sent: dict[int, int] = {}
        normalise = Encoder.normalise

        def counted(encoder: Encoder, x: Tensor) -> Tensor:
            if bool(x.any()):  # a black image tells a width
                sent[x.shape[-1]] = sent.get(x.shape[-1], 0) + len(x)
            return normalise(encoder, x)

        attack = self.build(name, options)
        attack.fit(self.view(Signals(), PixelCache()), self.known, rng(0, "fit"))
        with patch.object(Encoder, "normalise", counted):
            attack.score(self.view(Signals(), PixelCache()), self.images)
        return [(count, side) for side, count in sorted(sent.items())]

    @torch.no_grad()
    def bare(self, passes: Sequence[tuple[int, int]]) -> float:
        """Seconds of the encoder on as many pixels of the same sizes, in the views' batches."""
        view, total = self.view(Signals(), PixelCache()), 0.0
        for count, side in passes:
            pixels = torch.rand(count, 3, side, side, device=self.device)
            parts = view.passes(pixels)
            total += seconds(lambda p=parts: [self.method.encoder(x) for x in p], self.device)  # type: ignore[misc]
        return total

    def run(self, name: str, options: dict[str, object], view: Timed) -> tuple[float, float]:
        """Seconds of the view's answers for all images, known and scored, and for the latter."""
        attack, before = self.build(name, options), view.seconds
        attack.fit(view, self.known, rng(0, "fit"))
        fitted = view.seconds
        attack.score(view, self.images)
        scored = view.seconds
        with view.unmetered():  # an audit's threshold is set on the known images' scores
            attack.score(view, self.known.both()[0])
        return view.seconds - before, scored - fitted


def measure_attacks(bench: Bench, repeats: int) -> dict[str, Any]:
    """Each attack's signal beside its bare passes; all of them alone, and sharing their rows."""
    chosen = attacks()
    passes = {name: bench.passes(name, options) for name, options in chosen.items()}
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in chosen}
    queries: dict[str, set[int]] = {name: set() for name in chosen}
    for _ in range(repeats):
        signals, pixels = Signals(), PixelCache()
        for name, options in chosen.items():
            alone, beside = bench.view(Signals(), PixelCache()), bench.view(signals, pixels)
            whole, own = bench.run(name, options, alone)
            bare = bench.bare(passes[name])
            shared, _ = bench.run(name, options, beside)
            queries[name] |= {alone.queries, beside.queries}
            rows[name].append((whole, shared, own, bare, own / bare))
    found = {}
    for name, options in chosen.items():
        whole, shared, own, bare, ratio = (median(c) for c in zip(*rows[name], strict=True))
        found[name] = {
            "options": options,
            "passes": [{"images": count, "side": side} for count, side in passes[name]],
            "queries": sorted(queries[name]),
            "alone_s": whole,
            "shared_s": shared,
            "extraction_s": own,
            "bare_s": bare,
            "ratio": ratio,
        }
    plain = [name for name, options in chosen.items() if not options]
    sharing = {"defaults": _sharing(rows, plain), "all": _sharing(rows, list(chosen))}
    same = all(len(asked) == 1 for asked in queries.values())
    return {"attacks": found, "sharing": sharing | {"same_queries": same}}


def _sharing(rows: dict[str, list[tuple[float, ...]]], names: Sequence[str]) -> dict[str, Any]:
    """Seconds of `names` alone and sharing. Those with an option of their own come last, so the
    defaults' rows are shared among themselves only."""
    alone = [sum(turn) for turn in zip(*([r[0] for r in rows[n]] for n in names), strict=True)]
    shared = [sum(turn) for turn in zip(*([r[1] for r in rows[n]] for n in names), strict=True)]
    ratio = median(s / a for s, a in zip(shared, alone, strict=True))
    return {"attacks": names, "alone_s": median(alone), "shared_s": median(shared), "ratio": ratio}


def single_view(recipe: Augment, side: int) -> Callable[[Tensor], Tensor]:
    """The recipe of torchvision, for one image."""
    jitter = v2.ColorJitter(recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue)
    blur = v2.GaussianBlur(
        max(3, int(0.1 * side) | 1), (recipe.blur_sigma_min, recipe.blur_sigma_max)
    )
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


def single_crop(recipe: Crops, side: int) -> Callable[[Tensor], Tensor]:
    """A crop of torchvision, of one image."""
    area, ratio = (recipe.scale_min, recipe.scale_max), (recipe.ratio_min, recipe.ratio_max)
    cut = v2.RandomResizedCrop(recipe.pixels(side, side), area, ratio)
    composed: Callable[[Tensor], Tensor] = v2.Compose([cut, v2.RandomHorizontalFlip(recipe.flip)])
    return composed


@torch.no_grad()
def measure_loop(bench: Bench, repeats: int, views: int = 24, crops: int = 128) -> dict[str, Any]:
    """The loop that a user would write, a view and a forward pass an image, beside the views."""
    side, few = bench.images.shape[-1], bench.images[:NAIVE].to(bench.device).float() / 255
    cases: dict[str, tuple[Callable[[Tensor], Tensor], int, Callable[[Timed], Tensor], Views]] = {
        "views": (single_view(bench.augment, side), views,
                  lambda v: v.embed_views(bench.images, views), bench.augment),
        "crops": (single_crop(Crops(), side), crops,
                  lambda v: v.responses(bench.images, Crops(), crops), Crops()),
    }  # fmt: skip
    found = {}
    for kind, (single, count, ask, recipe) in cases.items():
        rows, times = [], max(1, count // 8)  # of the loop's images, enough to time
        for _ in range(repeats):
            draw = seconds(lambda: [single(x) for x in few for _ in range(times)], bench.device)  # noqa: B023
            loop = seconds(
                lambda: [bench.method.encoder(single(x)[None]) for x in few for _ in range(times)],  # noqa: B023
                bench.device,
            )
            fresh = bench.view(Signals(), PixelCache(limit=0))
            ours = seconds(lambda: ask(fresh), bench.device)  # noqa: B023
            drawn = seconds(lambda: fresh.view_pixels(bench.images, count, recipe), bench.device)  # noqa: B023
            theirs, own = len(few) * times, len(bench.images) * count
            rows.append((draw / theirs, drawn / own, loop / theirs, ours / own))
        draw, drawn, loop, ours = (median(c) * 1e6 for c in zip(*rows, strict=True))
        found[kind] = {
            "loop_pixels_us": draw, "pixels_us": drawn, "pixels_faster": draw / drawn,
            "loop_us": loop, "us": ours, "faster": loop / ours,
        }  # fmt: skip
    return found


def table(name: str, case: dict[str, Any]) -> str:
    """What was measured, for the eye."""
    lines = [f"{name}: attack, seconds of its signal, of the bare passes, ratio"]
    for attack, row in case["attacks"].items():
        times = f"{row['extraction_s']:9.4f}{row['bare_s']:9.4f}"
        lines.append(f"  {attack:15}{times}{row['ratio']:7.3f}")
    for which in ("defaults", "all"):
        row = case["sharing"][which]
        lines.append(f"  shared / alone, {which}: {row['ratio']:.3f} of {row['alone_s']:.2f} s")
    lines.append(f"  the same queries: {case['sharing']['same_queries']}")
    for kind, row in case["loop"].items():
        lines.append(
            f"  {kind}: {row['faster']:.1f} times faster than a loop, "
            f"{row['pixels_faster']:.1f} without the encoder"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", help="one encoder only, with --size")
    parser.add_argument("--size", type=int, default=32, help="pixels a side, with --net")
    parser.add_argument("--images", type=int, help="images that are scored")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)  # torchvision draws from the global generator
    cases = CASES if args.net is None else ((args.net, args.size, CASES[0][2]),)
    found = {}
    for net, size, images in cases:
        bench = Bench.of(net, size, args.images or images, torch.device(args.device))
        name = f"{net}-{size}"
        found[name] = {"images": len(bench.images), "known": 2 * KNOWN, "repeats": args.repeats}
        found[name] |= measure_attacks(bench, args.repeats)
        found[name]["loop"] = measure_loop(bench, args.repeats)
        sys.stdout.write(table(name, found[name]))
        sys.stdout.flush()
    where = {"device": args.device, "threads": args.threads}
    args.out.write_text(json.dumps({"cases": found, **where, **describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
