"""What the benchmark of signals runs on: an untrained encoder, images, and a view with a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known
from fedmia.attacks.baseline_c import Downstream
from fedmia.data.base import Request
from fedmia.data.synthetic import Synthetic
from fedmia.options import registry
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder, Recipe, SSLMethod
from fedmia.ssl.moco import MoCoV2
from fedmia.threat import Labels, Shadow, Threat, WhiteBox
from fedmia.threat.signals import PixelCache, Signals

KNOWN = 3  # images a side: the least that every attack fits on
OWN = 4  # of the shadow, likewise
CALLS = ("embed", "embed_plain", "embed_views", "responses", "features", "losses",
         "views_and_losses")  # fmt: skip
HOLDS = Threat("white_box", "outsider")
# It trains copies of the model and reads their losses: its passes are no signal of the model.
TRAINS = ("ascent-static",)
# An attack's own network is trained outside of what is timed, so hardly at all.
BRIEF = {"epochs": 1, "steps": 1}


def _timed(name: str) -> Callable[..., Any]:
    def call(self: Timed, *args: Any, **options: Any) -> Any:
        began = _now(self.device)
        answer = getattr(WhiteBox, name)(self, *args, **options)
        self.seconds += _now(self.device) - began
        return answer

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
    return time.process_time()


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call."""
    began = _now(device)
    call()
    return _now(device) - began


def attacks() -> list[str]:
    """Attacks on a released encoder: those that can do without shadows first."""
    classes = {n: registry.load("attack", n) for n in registry.names("attack")}
    chosen = [n for n, c in classes.items() if HOLDS.covers(c.needs) and n not in TRAINS]
    return sorted(chosen, key=lambda n: classes[n].uses_shadows)


@dataclass
class Bench:
    """One encoder, untrained, and the images that attacks are timed on."""

    method: SSLMethod
    augment: Augment
    images: Tensor
    known: Known
    device: torch.device
    shadow: Shadow  # its own passes are no part of what is timed
    labels: Labels
    precision: str = "float32"

    @classmethod
    def of(cls, net: str, size: int, images: int, device: torch.device, precision: str) -> Bench:
        spec = MoCoV2()
        sizes = [KNOWN, KNOWN, OWN, OWN, images]
        source = Synthetic(images=max(10, sum(sizes)), pixels=size)
        pool = torch.from_numpy(source.load(Request(None, None, None, 0)).images)
        labels = Labels([(pool, np.arange(len(pool)).astype(str))])
        a, b, c, d, chosen = pool[: sum(sizes)].split(sizes)
        sides = []
        for seed in (0, 1):
            backbone = registry.build("model", net, {}).build(3, size)
            recipe = Recipe((0.5,) * 3, (0.25,) * 3)
            method = spec.build(backbone, recipe, torch_rng(seed, "signals"))
            sides.append(method.to(device).eval())
        own: dict[str, Any] = {"held": torch.cat([a, b]), "signals": Signals(), "labels": labels}
        view = WhiteBox(sides[1], spec.augment, seed=0, device=device, **own)
        shadow = Shadow(view, c, d)
        return cls(sides[0], spec.augment, chosen, Known(a, b), device, shadow, labels, precision)

    def view(self, signals: Signals | None = None, pixels: PixelCache | None = None) -> Timed:
        """A view as the audit gives it, which shares the rows and pixels with others."""
        signals, pixels = signals or Signals(), pixels or PixelCache()
        own: dict[str, Any] = {"held": self.known.both()[0], "shadows": (self.shadow,)}
        own |= {"labels": self.labels, "precision": self.precision, "device": self.device}
        return Timed(self.method, self.augment, seed=0, signals=signals, pixels=pixels, **own)

    def build(self, name: str) -> Attack:
        """The attack with its defaults, its network hardly trained."""
        known = {f.name for f in fields(registry.load("attack", name))}
        return registry.build("attack", name, {k: v for k, v in BRIEF.items() if k in known})

    def passes(self, name: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What one `score` sends through the encoder, (images, side), and the batches that it
        takes gradients of on the attacker's own one."""
        sent: dict[int, int] = {}
        gradients: list[tuple[int, int]] = []
        normalise, classify = Encoder.normalise, Downstream.forward

        def counted(encoder: Encoder, x: Tensor) -> Tensor:
            # A black image tells a width; the shadow's passes cost no query.
            if encoder is self.method.encoder and bool(x.any()):
                sent[x.shape[-1]] = sent.get(x.shape[-1], 0) + len(x)
            return normalise(encoder, x)

        def climbed(network: Downstream, x: Tensor) -> Tensor:
            gradients.append((len(x), x.shape[-1]))
            return classify(network, x)

        attack = self.build(name)
        attack.fit(self.view(), self.known, rng(0, "fit"))
        own = patch.object(Downstream, "forward", climbed)
        with patch.object(Encoder, "normalise", counted), own:
            attack.score(self.view(), self.images)
        return [(count, side) for side, count in sorted(sent.items())], gradients

    def bare(
        self, passes: Sequence[tuple[int, int]], gradients: Sequence[tuple[int, int]]
    ) -> float:
        """Seconds of the encoder on as many pixels of the same sizes, in the views' batches, and of
        gradients of as many with respect to their pixels, in the same batches."""
        view, encoder, total = self.view(), self.method.encoder, 0.0
        low = torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
        for count, side in passes:
            pixels = torch.rand(count, 3, side, side, device=self.device)
            parts = view.passes(pixels)
            with torch.no_grad(), low:
                total += seconds(lambda p=parts: [encoder(x) for x in p], self.device)  # type: ignore[misc]
        own = view.copy_method().encoder.requires_grad_(False)
        for count, side in gradients:
            pixels = torch.rand(count, 3, side, side, device=self.device).requires_grad_()
            total += seconds(lambda x=pixels: torch.autograd.grad(own(x).sum(), x), self.device)  # type: ignore[misc]
        return total

    def run(self, name: str, view: Timed) -> tuple[float, float]:
        """Seconds of the view's answers for all images, known and scored, and for the latter."""
        attack, before = self.build(name), view.seconds
        attack.fit(view, self.known, rng(0, "fit"))
        fitted = view.seconds
        attack.score(view, self.images)
        scored = view.seconds
        with view.unmetered():  # an audit's threshold is set on the known images' scores
            attack.score(view, self.known.both()[0])
        return view.seconds - before, scored - fitted
