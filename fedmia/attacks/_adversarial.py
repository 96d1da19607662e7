"""Targeted adversarial examples of a downstream classifier, as a recipe of views."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from torch import Tensor, nn
from torch.nn import functional as F

from fedmia.ssl.base import Encoder

BATCH = 64  # images a gradient is taken of at once


class Downstream(nn.Module):
    """An encoder of the attacker's own and a logistic regression on it: pixels to class logits.

    Passes through it are the attacker's own work, not queries.

    Args:
        model: standardisation and logistic regression on `layer` of the encoder.
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
        self.register_buffer("mean", _float(scaler.mean_))
        self.register_buffer("deviation", _float(scaler.scale_))
        self.register_buffer("weight", _float(weight))
        self.register_buffer("bias", _float(bias))
        self.to(next(encoder.parameters(), encoder.mean).device)

    @property
    def classes(self) -> int:
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
        found = hashlib.sha256(self.layer.encode())
        for name, tensor in self.state_dict().items():
            found.update(name.encode() + np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
        return found.digest()


def _float(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.asarray(values)).float()


@dataclass(frozen=True)
class Adversarial:
    """Projected gradient descent (Madry et al., 2018) towards class `target`, from the image.

    Attributes:
        key: digest of `model`, which stands for it in comparisons.
        epsilon: largest change of a pixel. step: change of a pixel in one of `steps`.
    """

    key: bytes
    target: int
    epsilon: float
    steps: int
    step: float
    model: Downstream = field(compare=False, repr=False)

    @property
    def draws(self) -> int:
        return 0

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """(B, C, H, W) in [0, 1], within epsilon of (B, C, H, W); `uniforms` play no part."""
        return torch.cat([self._craft(part) for part in images.split(BATCH)])

    def _craft(self, images: Tensor) -> Tensor:
        low, high = (images - self.epsilon).clamp(min=0), (images + self.epsilon).clamp(max=1)
        wanted = torch.full((len(images),), self.target, device=images.device)
        x = images
        for _ in range(self.steps):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                loss = F.cross_entropy(self.model(x), wanted, reduction="sum")
                (gradient,) = torch.autograd.grad(loss, x)
            x = torch.minimum(torch.maximum(x.detach() - self.step * gradient.sign(), low), high)
        return x
