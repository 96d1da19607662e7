"""Feature combination: similarity, contrastive loss and highest confidence, one classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks._classifier import ClassifierAttack
from fedmia.attacks._cosine import pairwise_cosines
from fedmia.attacks.base import Scores, negatives_option
from fedmia.attacks.classifier import CLASSIFIERS
from fedmia.settings import option
from fedmia.threat import Threat, WhiteBox


@dataclass
class Combined(ClassifierAttack):
    """Cosine similarity, contrastive loss and highest softmax output, in a linear classifier."""

    paper: ClassVar[str] = "Chen et al., Federated Contrastive Learning, Sec. IV-B3, Eq. 7"
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("similarity", "loss", "features")

    views: int = option(24, "augmented views an image; the loss pairs their halves", ge=2)
    negatives: str = negatives_option()
    classifier: str = option("lda", "classifier on the three features", choices=CLASSIFIERS)

    def features(self, view: WhiteBox, images: Tensor) -> tuple[tuple[str, str, str], Scores]:
        names = ("cosine similarity", "contrastive loss", "highest confidence")
        return names, self.inputs(view, images)

    def inputs(self, view: WhiteBox, images: Tensor) -> Scores:
        """(N, 3): mean cosine of the views, mean loss of their pairs, mean highest confidence."""
        rows, losses = view.views_and_losses(images, self.views, self.negatives)
        embedded = rows.double()
        similarity = pairwise_cosines(embedded).mean(axis=1)
        confidence = torch.softmax(embedded, dim=2).amax(dim=2).mean(dim=1).numpy()
        return np.stack([similarity, losses.double().numpy(), confidence], axis=1)
