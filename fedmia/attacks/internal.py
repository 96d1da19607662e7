"""Internal-layer attack: top-K confidences of a softmax over a layer's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._classifier import ClassifierAttack
from fedmia.attacks.classifier import CLASSIFIERS
from fedmia.settings import option
from fedmia.threat import Threat, WhiteBox


@dataclass
class Internal(ClassifierAttack):
    """Top-K softmax confidences of internal layers, each layer read as a classifier."""

    paper: ClassVar[str] = "Chen et al., Federated Contrastive Learning, Sec. IV-B2, Eq. 6"
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("layers",)

    layers: tuple[str, ...] | None = option(
        None,
        "layers whose outputs are read: layer1..layer4, avgpool, encoder (none: the last three)",
    )
    top: int = option(3, "K, largest confidences used of each layer", ge=1)
    classifier: str = option("lr", "classifier on the confidences", choices=CLASSIFIERS)

    def inputs(self, view: WhiteBox, images: Tensor) -> NDArray[np.float64]:
        outputs = view.features(images, view.layers[-3:] if self.layers is None else self.layers)
        return np.concatenate([top_confidences(f, self.top) for f in outputs.values()], axis=1)


def top_confidences(outputs: Tensor, top: int) -> NDArray[np.float64]:
    """Largest values of softmax over each row of (N, D), descending, as logarithms: `top` of them,
    or all D where there are fewer.

    The paper has no class head: "Predict(G(x), N)" is read as a softmax over the layer's D
    outputs. Logarithms keep confidences near 0 and 1 apart for a linear classifier.
    """
    logs = torch.log_softmax(outputs.double(), dim=1)
    best = logs.topk(min(top, logs.shape[1]), dim=1).values
    return np.asarray(best.numpy(), dtype=np.float64)
