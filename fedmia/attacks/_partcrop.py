"""PartCrop's energies (Eq. 4-5) and the network that its attacks end in (Table 1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedmia.attacks._mlp import logits, mlp, train_logits
from fedmia.attacks.base import Attack, Known, Scores, refuse_few
from fedmia.runtime.eager import Adam
from fedmia.settings import option
from fedmia.ssl.augment import content_uniforms
from fedmia.threat import BlackBox, Threat

SETTINGS = ("partial", "shadow")
ENERGIES = ("both", "uniform", "gaussian")
# Hidden widths by name: Table 1, and Table 11 as the public code has it (the table's own rows
# "narrow" and "wide" are exchanged).
WIDTHS: dict[str, tuple[int, ...]] = {
    "default": (512, 256, 128),
    "wide": (1024, 512, 256),
    "narrow": (256, 128, 64),
    "deep": (512, 256, 256, 128),
    "shallow": (512, 128),
}
BATCH = 200  # known images a step, half of them members (Sec. 5.4 and the public code)
EPS = 1e-6  # inside the benchmark's logarithm
CHUNK = 1 << 22  # responses a block of energies


def gaussian_benchmark(images: Tensor, seed: int, crops: int, parts: int) -> Tensor:
    """(N, crops, parts) float64 distributions, a bell over the parts of each crop of each image.

    The density of sorted normal samples at those samples, normalised, as the public code draws it;
    there anew at every pass for the whole batch, here from the image's content and the crop.

    Args:
        images: uint8 (N, C, H, W).
        seed: of the view.
        parts: L >= 2.
    """
    u = content_uniforms(images, seed, crops, parts, stream="partcrop benchmark")
    z = torch.special.ndtri(torch.from_numpy(u).double() + 2.0**-25)  # the middle of u's step
    z = z.sort(dim=2).values
    apart = (z - z.mean(dim=2, keepdim=True)) / z.std(dim=2, keepdim=True)
    return torch.softmax(-apart.square() / 2, dim=2)


def energies(responses: Tensor, benchmark: Tensor | None) -> Tensor:
    """KL(benchmark || softmax(responses)) of each crop, (N, V) float64 (Eq. 4-5).

    Args:
        responses: (N, V, L).
        benchmark: (N, V, L), or None for the uniform one.
    """
    v = torch.log_softmax(responses.double(), dim=2)
    if benchmark is None:
        return float(np.log(1 / v.shape[2] + EPS)) - v.mean(dim=2)
    return (benchmark * (torch.log(benchmark + EPS) - v)).sum(dim=2)


def sorted_energies(responses: Tensor, images: Tensor, seed: int, kinds: str) -> list[Tensor]:
    """Each kind of energy in descending order, (N, V) float32, uniform first.

    Args:
        responses: (N, V, L) of uint8 `images` (N, C, H, W).
        kinds: one of ENERGIES.
    """
    N, V, L = responses.shape
    few, parts = max(1, CHUNK // (V * L)), []
    if kinds != "gaussian":
        parts.append([energies(r, None) for r in responses.split(few)])
    if kinds != "uniform":
        pairs = zip(images.split(few), responses.split(few), strict=True)
        parts.append([energies(r, gaussian_benchmark(x, seed, V, L)) for x, r in pairs])
    return [torch.cat(e).sort(dim=1, descending=True).values.float() for e in parts]


def spread(group: Tensor) -> float:
    """Standard deviation of all numbers of (N, F), 1 where they are all the same."""
    return float(group.double().std(unbiased=False)) or 1.0


def init_normal(module: nn.Module, generator: torch.Generator) -> None:
    """Weights N(0, 0.01^2) and biases 0 (Sec. 5.4), from `generator`."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01, generator=generator)
            nn.init.zeros_(layer.bias)


@dataclass
class NetworkAttack(Attack):
    """An attack that feeds some inputs of an image to the fully connected network of Table 1.

    From a start of N(0, 0.01^2) small inputs train nothing: the weight decay outweighs their
    gradient, and every score is the same. So by default a kind of input is divided by one number,
    its spread over the images fitted on, which keeps the kind's own shape.
    """

    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    by_round: ClassVar[bool] = False
    least_known: ClassVar[int] = 2

    setting: str = option(
        "partial",
        "what the network is fitted on: known images of the target (partial), or the images of "
        "encoders that the attacker trained itself (shadow)",
        choices=SETTINGS,
    )
    attacker: str = option("default", "widths of the network", choices=tuple(WIDTHS))
    scale: str = option(
        "spread",
        "inputs of the network: divided by the spread of their kind over the images fitted on, or "
        "as they are (none, the paper's)",
        choices=("spread", "none"),
    )
    epochs: int = option(100, "passes over the images fitted on", ge=1)

    @property
    def learns(self) -> bool:
        return self.setting == "partial"

    def asks_shadows(self) -> bool:
        return self.setting == "shadow"

    @property
    def shadow_threshold(self) -> float | None:
        return None if self.learns else 0.0

    @abstractmethod
    def inputs(self, view: BlackBox, images: Tensor) -> list[Tensor]:
        """Inputs of the network for uint8 (N, C, H, W), kind by kind, each (N, F) float32."""

    def network(self, widths: Sequence[int]) -> nn.Module:
        """The network, its weights not yet set; `widths` start with the number of inputs."""
        return mlp(widths)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        sources = [(view, known)]
        if self.setting == "shadow":
            sources = [(s.view, Known(s.members, s.nonmembers)) for s in view.shadows]
        both = [(v, *k.both()) for v, k in sources]
        truth = np.concatenate([t for _, _, t in both])
        members = int(truth.sum())
        refuse_few(self.name, self.least_known, members, len(truth) - members)
        kinds = [torch.cat(k) for k in zip(*(self.inputs(v, x) for v, x, _ in both), strict=True)]
        self._spreads = tuple(spread(k) if self.scale == "spread" else 1.0 for k in kinds)
        inputs = self._scaled(kinds)
        self._model = train_logits(
            self.network((inputs.shape[1], *WIDTHS[self.attacker])), inputs, truth, rng,
            optimizer=partial(Adam, lr=1e-3, weight_decay=5e-4),
            epochs=self.epochs, batch=BATCH, start=init_normal, balanced=True,
        )  # fmt: skip

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        return logits(self._model, self._scaled(self.inputs(view, images)))

    def _scaled(self, kinds: list[Tensor]) -> Tensor:
        return torch.cat([k / s for k, s in zip(kinds, self._spreads, strict=True)], dim=1)
