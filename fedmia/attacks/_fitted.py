"""What is fitted on shadow encoders: the best threshold, or a network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmia.attacks._mlp import logits, mlp, train_logits
from fedmia.attacks.base import Attack, Known, Scores, refuse_few
from fedmia.runtime.eager import Adam
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.threat import BlackBox, Threat

LEAST = 2  # images a side to fit on
AS_IT_IS = torch.zeros(()), torch.ones(())  # mean and deviation that change nothing


def best_threshold(values: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """The threshold theta* under which `values` (N,) no smaller are members most accurately.

    Of a whole range of equally good thresholds its middle, of several ranges the lowest.

    Args:
        truth: (N,), 1 = member.
    """
    each, inverse = np.unique(values, return_inverse=True)
    members = np.bincount(inverse, weights=truth, minlength=len(each))
    others = np.bincount(inverse, weights=1 - truth, minlength=len(each))
    # Cut k calls each[k:] members; its errors are alpha (members below) and beta (others above).
    alpha = np.concatenate([[0], np.cumsum(members)])
    beta = np.concatenate([[0], np.cumsum(others[::-1])])[::-1]
    cut = int(np.argmin(alpha + beta))
    if cut == 0:
        return float(each[0])
    if cut == len(each):
        return float(np.nextafter(each[-1], np.inf))
    below, above = each[cut - 1], each[cut]
    middle = below + (above - below) / 2
    return float(middle if middle > below else above)


class ShadowFitted(Attack):
    """An attack fitted on encoders whose members the attacker knows: its shadows.

    Each encoder's features are read through its own view, with the augmentation that the harness
    gave it; those of several shadows are pooled.
    """

    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    uses_shadows: ClassVar[bool] = True

    @property
    def learns(self) -> bool:
        return False

    @property
    def shadow_threshold(self) -> float | None:
        return None if self.learns else 0.0

    @abstractmethod
    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """The membership features (N, F) of uint8 `images` under the view's encoder."""

    @abstractmethod
    def learn(self, inputs: Tensor, truth: NDArray[np.int64], rng: np.random.Generator) -> Any:
        """What is fitted on features (N, F) and truth (N,), 1 = member."""

    @abstractmethod
    def decide(self, fitted: Any, inputs: Tensor) -> Scores:
        """(N,) scores of features (N, F); above 0 = member."""

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """Fit on the examples of all encoders together: the images of `pools`, or some of them.

        Raises:
            InputError: the view has no shadows, one has too few images on one side, or their
                features differ in length.
        """
        rows, truth = zip(*self._examples(view, known), strict=True)
        widths = sorted({r.shape[1] for r in rows})
        if len(widths) > 1:
            raise InputError(f"{self.name}: shadow encoders give features of lengths {widths}")
        self._fitted = self.learn(torch.cat(rows), np.concatenate(truth), rng)

    def score(self, view: BlackBox, images: Tensor) -> Scores:
        return self.decide(self._fitted, self.inputs(view, images))

    def pools(self, view: BlackBox, known: Known) -> list[tuple[BlackBox, Known]]:
        """Encoders whose members the attacker knows, with images of either kind."""
        return [(s.view, Known(s.members, s.nonmembers)) for s in view.shadows]

    def _examples(self, view: BlackBox, known: Known) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
        """Features and truth of each encoder's images that are fitted on."""
        for encoder, pool in self.pools(view, known):
            refuse_few(self.name, LEAST, len(pool.members), len(pool.nonmembers))
            images, truth = pool.both()
            yield self.inputs(encoder, images), truth


class ThresholdFitted(ShadowFitted):
    """One number an image, and the threshold that is most accurate on the shadows."""

    def learn(self, inputs: Tensor, truth: NDArray[np.int64], rng: np.random.Generator) -> float:
        return best_threshold(inputs[:, 0].numpy(), truth)

    def decide(self, fitted: float, inputs: Tensor) -> Scores:
        return np.asarray(inputs[:, 0].numpy() - fitted)


@dataclass
class NetworkFitted(ShadowFitted):
    """A neural network on the features: cross-entropy, Adam, as in Sec. 5.1."""

    by_round: ClassVar[bool] = False

    epochs: int = option(300, "epochs over the features", ge=1)
    rate: float = option(1e-4, "learning rate of Adam", gt=0)
    batch_size: int = option(128, "images a step (the paper does not say)", ge=1)
    scale: str = option(
        "none",
        "features as they are, or brought to mean 0 and deviation 1 on the images fitted on (the "
        "paper does not say)",
        choices=("none", "standard"),
    )

    def network(self, width: int) -> nn.Module:
        """(B, width) -> (B, 1) logits, two hidden layers of 256; weights are set later."""
        return mlp((width, 256, 256))

    def learn(self, inputs: Tensor, truth: NDArray[np.int64], rng: np.random.Generator) -> Any:
        scale = self.scaling(inputs) if self.scale == "standard" else AS_IT_IS
        model = train_logits(
            self.network(inputs.shape[1]), self.scaled(inputs, *scale).float(), truth, rng,
            optimizer=partial(Adam, lr=self.rate, fused=True),
            epochs=self.epochs, batch=self.batch_size,
        )  # fmt: skip
        return scale, model.double()  # so that a row's logit does not depend on its place

    def scaling(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each feature."""
        return inputs.mean(dim=0), inputs.std(dim=0)

    def scaled(self, inputs: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """(inputs - mean) / deviation, float64; a constant feature is only moved."""
        return (inputs.double() - mean) / torch.where(deviation > 0, deviation, 1.0)

    def decide(self, fitted: Any, inputs: Tensor) -> Scores:
        scale, model = fitted
        return logits(model, self.scaled(inputs, *scale))
