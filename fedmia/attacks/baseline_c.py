"""Baseline-C of EncoderMI: confidence scores of targeted adversarial examples."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.attacks._downstream import DownstreamFitted, confidences
from fedmia.attacks.base import Known
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.ssl.base import Encoder
from fedmia.threat import BlackBox, WhiteBox

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

BATCH = 64  # images a gradient is taken of at once


class Downstream(nn.Module):
    """An encoder of the attacker's own and a logistic regression on it: pixels to class logits.

    Passes through it are the attacker's own work, not queries.

    Args:
        encoder: the attacker's own encoder.
        model: standardisation and logistic regression on `layer` of the encoder.
        layer: its layer that the classifier reads.
    """

    mean: Tensor
    deviation: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, encoder: Encoder, model: Pipeline, layer: str) -> None:
        super().__init__()
        scaler, linear = model[0], model[1]
        self.encoder, self.layer = encoder.eval().requires_grad_(False), layer
        weight, bias = linear.coef_, linear.intercept_
        if len(weight) == 1:  # of two classes only the second has a logit
            weight, bias = np.vstack([0 * weight, weight]), np.append([0.0], bias)
        arrays = {"mean": scaler.mean_, "deviation": scaler.scale_, "weight": weight, "bias": bias}
        for name, values in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(values)).float())
        self.to(next(encoder.parameters(), encoder.mean).device)

    @property
    def classes(self) -> int:
        """k, classes of the downstream task."""
        return len(self.weight)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) in [0, 1] -> (B, k)."""
        shifted = (pixels - self.encoder.mean) / self.encoder.std
        features = self.encoder.backbone(shifted)
        if self.layer == "encoder":
            features = self.encoder.head(features)
        return F.linear((features - self.mean) / self.deviation, self.weight, self.bias)

    def digest(self) -> bytes:
        """Of all weights: equal classifiers deceive equally."""
        sha = hashlib.sha256(self.layer.encode())
        for name, tensor in self.state_dict().items():
            sha.update(name.encode() + np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
        return sha.digest()


@dataclass(frozen=True)
class Adversarial:
    """Projected gradient descent (Madry et al., 2018) towards class `target`, from the image.

    Attributes:
        key: digest of `model`, which stands for it in comparisons.
        target: class that the image is moved towards.
        epsilon: largest change of a pixel.
        steps: number of steps of the descent.
        step: change of a pixel in one of `steps`.
        model: the network that is deceived.
    """

    key: bytes
    target: int
    epsilon: float
    steps: int
    step: float
    model: Downstream = field(compare=False, repr=False)

    @property
    def draws(self) -> int:
        """None: nothing is random."""
        return 0

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """(B, C, H, W) in [0, 1], within epsilon of (B, C, H, W); `uniforms` play no part."""
        return torch.cat([self._craft(part) for part in images.split(BATCH)])

    def _craft(self, images: Tensor) -> Tensor:
        low, high = (images - self.epsilon).clamp(min=0), (images + self.epsilon).clamp(max=1)
        labels = torch.full((len(images),), self.target, device=images.device)
        x = images
        for _ in range(self.steps):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                loss = F.cross_entropy(self.model(x), labels, reduction="sum")
                (gradient,) = torch.autograd.grad(loss, x)
            x = torch.minimum(torch.maximum(x.detach() - self.step * gradient.sign(), low), high)
        return x


@dataclass
class BaselineC(DownstreamFitted):
    """Confidence scores of adversarial examples towards each class, in a network on shadows.

    For each of the k classes of the downstream task, PGD finds an example on a shadow's downstream
    classifier; the k score vectors are put side by side. The attacker has gradients of its own
    encoders only: the target's images are disturbed on the first shadow. PGD's steps are not in
    the paper (here those of Madry et al., 2018: 7 of 2/255).
    """

    paper: ClassVar[str] = "Liu et al., EncoderMI, CCS 2021, Sec. 5.1 (Baseline-C)"

    epsilon: float = option(8 / 255, "largest change of a pixel in [0, 1]", gt=0, le=1)
    steps: int = option(7, "steps of PGD", ge=1)
    step: float = option(2 / 255, "change of a pixel in one step", gt=0, le=1)

    def fit(self, view: BlackBox, known: Known, rng: np.random.Generator) -> None:
        """As `DownstreamFitted.fit`.

        Raises:
            InputError: also where the shadows' weights are not at hand.
        """
        super().fit(view, known, rng)
        first = view.shadows[0].view
        self._crafts = self._deceive(first, self.classifier(first))

    def inputs(self, view: BlackBox, images: Tensor) -> Tensor:
        """float64 (N, k^2): k vectors of k confidences; k queries an image."""
        model = self.classifier(view)
        return self._answers(model, self._deceive(view, model), view, images)

    def answers(self, model: Pipeline, view: BlackBox, images: Tensor) -> Tensor:
        return self._answers(model, self._crafts, view, images)

    def _deceive(self, view: BlackBox, model: Pipeline) -> tuple[Adversarial, ...]:
        """One recipe a class."""
        if not isinstance(view, WhiteBox):
            raise InputError(f"{self.name}: needs shadow encoders whose weights the attacker has")
        network = Downstream(view.copy_method().encoder, model, self.layer)
        how = (self.epsilon, self.steps, self.step, network)
        return tuple(Adversarial(network.digest(), t, *how) for t in range(network.classes))

    def _answers(
        self, model: Pipeline, crafts: tuple[Adversarial, ...], view: BlackBox, images: Tensor
    ) -> Tensor:
        rows = [view.embed_views(images, 1, self.layer, craft)[:, 0] for craft in crafts]
        return torch.cat([confidences(model, row) for row in rows], dim=1)
