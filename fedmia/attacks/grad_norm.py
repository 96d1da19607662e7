"""Gradient norm: how far the contrastive loss still pulls at an image's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Scores, negatives_option
from fedmia.settings import option
from fedmia.threat import Threat, WhiteBox


@dataclass
class GradNorm(Attack):
    """Norm of the contrastive loss's gradient at the image's outputs: smaller for members.

    As in the public code of the paper (CLIP-MIA-Bench, its gradient attack) the gradient is taken
    at the two outputs of a positive pair, not at the weights, so that it costs no pass backward
    through the encoder. There the pair is an image and its text, here two views; there the outputs
    have unit length, here they are as they come, and bringing them to that length is part of the
    loss. The classifier of loss and norm that the paper fits on top is left out.
    """

    paper: ClassVar[str] = "Gomez, Rethinking Membership Inference Attacks for CLIP, AAAI 2026"
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("loss", "norm")

    views: int = option(24, "augmented views an image; their halves are paired", ge=2)
    negatives: str = negatives_option()

    def score(self, view: WhiteBox, images: Tensor) -> Scores:
        """Minus the mean, over the pairs, of the norm of the gradient at both outputs."""
        view.charge(view.bank_queries(self.negatives))
        rows, pairs = view.embed_views(images, self.views), self.views // 2
        method = view.copy_method()

        def read(some: Tensor) -> Tensor:
            z = rows[some].to(view.device).requires_grad_(True)
            loss = torch.stack(
                [method.output_losses(z[:, i], z[:, pairs + i]).sum() for i in range(pairs)]
            ).sum()  # of outputs that no two images and no two pairs share: gradients stay apart
            (slope,) = torch.autograd.grad(loss, z)  # NxVxP
            both = torch.cat([slope[:, :pairs], slope[:, pairs : 2 * pairs]], dim=2)
            return torch.linalg.vector_norm(both, dim=2).mean(dim=1).cpu()

        norms = view.by_negatives(method, self.negatives, images, read)
        return -np.asarray(norms.double().numpy())
