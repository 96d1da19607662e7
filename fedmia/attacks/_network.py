"""The small network that PartCrop and its baselines end in (Zhu et al., Table 1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
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
from fedmia.threat import BlackBox, Threat

SETTINGS = ("partial", "shadow")
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


def spread(group: Tensor) -> float:
    """Standard deviation of all numbers of (N, F), 1 where they are all the same."""
    return float(group.double().std(unbiased=False)) or 1.0


def spread_of_each(group: Tensor) -> Tensor:
    """Standard deviation of each column of (N, F), 1 where it is constant."""
    deviations = group.double().std(dim=0, unbiased=False).float()
    return torch.where(deviations > 0, deviations, 1.0)


SPREADS: dict[str, Callable[[Tensor], float | Tensor]] = {
    "spread": spread,
    "standard": spread_of_each,
    "none": lambda group: 1.0,
}


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
        "inputs of the network: divided by the spread of their kind over the images fitted on, "
        "each less its mean over its own spread (standard), or as they are (none, the paper's)",
        choices=tuple(SPREADS),
    )
    epochs: int = option(100, "passes over the images fitted on", ge=1)
    steps: int = option(
        1, "least steps of the training: few images are passed over more often", ge=1
    )

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

    def redraw(self, view: BlackBox, images: Tensor) -> Iterator[list[Tensor]]:
        """Other draws of `inputs`, which later epochs take in turn; none by default."""
        yield from ()

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
        by_source = [[self.inputs(v, x), *self.redraw(v, x)] for v, x, _ in both]
        draws = [
            [torch.cat(kind) for kind in zip(*of_draw, strict=True)]
            for of_draw in zip(*by_source, strict=True)
        ]
        every = [torch.cat(kind) for kind in zip(*draws, strict=True)]
        self._means = tuple(k.mean(dim=0) if self.scale == "standard" else 0.0 for k in every)
        self._spreads = tuple(SPREADS[self.scale](k) for k in every)
        inputs = [self._scaled(kinds) for kinds in draws]
        self._model = train_logits(
            self.network((inputs[0].shape[1], *WIDTHS[self.attacker])), inputs, truth, rng,
            optimizer=partial(Adam, lr=1e-3, weight_decay=5e-4),
            epochs=max(self.epochs, -(-self.steps // -(-len(truth) // BATCH))),
            batch=BATCH, start=init_normal, balanced=True,
        )  # fmt: skip

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        return logits(self._model, self._scaled(self.inputs(view, images)))

    def _scaled(self, kinds: list[Tensor]) -> Tensor:
        scaled = zip(kinds, self._means, self._spreads, strict=True)
        return torch.cat([(kind - mean) / spread for kind, mean, spread in scaled], dim=1)
