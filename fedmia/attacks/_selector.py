"""The networks of SD-MI and Fe-MI, and the two ways in which they have been trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmia.attacks._mlp import logits, mlp, train_logits
from fedmia.attacks.base import Scores
from fedmia.records import EPOCHS_CUT
from fedmia.runtime.eager import SGD


class AnchorSelector(nn.Module):
    """Attacker(Sig(x) * Selector(v)): weights of the anchors, read off the image's own features.

    Selector: Linear(D, D), ReLU, Linear(D, A), ReLU (LpLA Eq. 11; SD-MI's code). A unit whose
    weight is 0 for every image silences its anchor.

    Args:
        anchors: A, length of the signature.
        width: D, length of the feature vector.
        attacker: (N, A) -> (N, 1).
    """

    def __init__(self, anchors: int, width: int, attacker: nn.Module) -> None:
        super().__init__()
        self.sizes = [anchors, width]
        self.selector = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, anchors), nn.ReLU()
        )
        self.attacker = attacker

    def forward(self, inputs: Tensor) -> Tensor:
        """(N, 1) from (N, A + D), the signature and then the features."""
        signature, vector = inputs.split(self.sizes, dim=1)
        out: Tensor = self.attacker(signature * self.selector(vector))
        return out


def tanh_attacker(inputs: int) -> nn.Module:
    """SD-MI's code: five linear layers, hidden 512, Tanh between them."""
    return mlp([inputs, 512, 512, 512, 512], "tanh")


def relu_attacker(inputs: int) -> nn.Module:
    """LpLA's "simple three-layer" ReLU network; hidden 256 as in EncoderMI, the paper is silent."""
    return mlp([inputs, 256, 256])


@dataclass(frozen=True)
class TrainingRecipe:
    """How a network is trained: on whole epochs of the known images, class-balanced.

    LpLA's Table 1 has batches of 128 and gives no optimizer; SD-MI's code has full batches, whose
    rate `halving_factor` lowers, and plain gradient descent at 0.1, which is taken for both. Adam
    at 1e-3 and 1e-4 fits the known images sooner and the others worse.

    Attributes:
        epochs: of the paper or code.
        batch: images a step, None for all of them.
        rate: epoch -> factor on the learning rate.
        optimizer: builds one over the parameters.
    """

    epochs: int
    batch: int | None
    rate: Callable[[int], float] | None = None
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] = partial(SGD, lr=0.1)

    def limit_epochs(self, images: int, steps: int) -> int:
        """Epochs on `images` images that take no more than `steps` steps (0: no limit)."""
        each = 1 if self.batch is None else -(-images // self.batch)
        return max(1, min(self.epochs, steps // each)) if steps else self.epochs


def halving_factor(epoch: int) -> float:
    """StepLR(2000, 0.5) of SD-MI's code, an epoch a step there."""
    return 0.5 ** (epoch // 2000)


class ScaledNetwork:
    """A network on inputs that are brought to [0, 1] on the known images, as SD-MI's code does.

    A candidate may lie outside; a feature that is constant on the known images is only shifted.

    Attributes:
        cut: what `steps` left of the recipe's epochs, by EPOCHS_CUT; empty where it left all.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        truth: NDArray[np.int64],
        rng: np.random.Generator,
        recipe: TrainingRecipe,
        steps: int,
    ) -> None:
        from sklearn.preprocessing import MinMaxScaler

        self.scaler = MinMaxScaler().fit(inputs.double().numpy())
        epochs = recipe.limit_epochs(len(inputs), steps)
        # For the report, which says so.
        self.cut = (
            {} if epochs == recipe.epochs else {EPOCHS_CUT: f"{epochs:,} of {recipe.epochs:,}"}
        )
        trained = train_logits(
            model, self._scale(inputs).float(), truth, rng,
            optimizer=recipe.optimizer, batch=recipe.batch, rate=recipe.rate,
            epochs=epochs,
        )  # fmt: skip
        self.model = trained.double()  # a row's score is the same whatever is scored beside it

    def scores(self, inputs: Tensor) -> Scores:
        """(N,) logits of inputs (N, F)."""
        return logits(self.model, self._scale(inputs))

    def _scale(self, inputs: Tensor) -> Tensor:
        return torch.from_numpy(self.scaler.transform(inputs.double().numpy()))
