"""Static ascent: climb the loss of the images under test on the released model, watch it rise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedmia.attacks._ascent import LOSSES, climb, read_losses
from fedmia.attacks.base import Attack, Scores
from fedmia.data.images import digests
from fedmia.settings.option import option
from fedmia.ssl.base import SSLMethod
from fedmia.threat import NEGATIVES, Threat, WhiteBox


@dataclass
class AscentStatic(Attack):
    """Gradient ascent on the released model: the loss of members is said to rise less."""

    paper: ClassVar[str] = (
        "Chen et al., Federated Contrastive Learning, Sec. IV-C, Eq. 8, Fig. 10-12"
    )
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("ascent",)
    act: ClassVar[str] = "ascent"
    by_round: ClassVar[bool] = False

    steps: int = option(5, "G, ascent steps on each batch under test", ge=1)
    lr: float = option(0.1, "learning rate of the ascent", gt=0)
    batch: int = option(32, "images climbed together, from one copy of the released model", ge=1)
    pairs: int = option(2, "pairs of fixed views an image", ge=1)
    ascend: str = option(
        "parameters",
        "what climbs: the model's parameters (Algorithm 1) or the pixels (Eq. 8 to the letter)",
        choices=("parameters", "pixels"),
    )
    negatives: str = option(
        "held",
        "negatives of the loss: keys of half the images that the attacker holds, or its queue",
        choices=NEGATIVES,
    )
    loss: str = option("training", "the loss that is climbed and read", choices=LOSSES)

    def score(self, view: WhiteBox, images: Tensor) -> Scores:
        """Minus the rise of each image's loss. Batches are formed by content, not by order."""
        before, after = self.rise(view, images)
        return before - after

    def rise(self, view: WhiteBox, images: Tensor) -> tuple[Scores, Scores]:
        """Loss of each image before and after the ascent of its batch, (N,) each."""
        names = digests(images.numpy())
        start, method = view.state(), view.copy_method()
        view.charge(view.bank_queries(self.negatives))

        def read(rows: Tensor) -> Tensor:
            order = sorted(rows.tolist(), key=names.__getitem__)
            found = torch.empty(len(images), 2)
            for at in range(0, len(order), self.batch):
                chosen = order[at : at + self.batch]
                method.load_shared(start)
                pixels = view.view_pixels(images[chosen], 2 * self.pairs)
                view.charge(2 * self.pairs * len(chosen) * (self.steps + 2))
                found[chosen] = torch.stack(self._climb(method, pixels), dim=1).float().cpu()
            method.load_shared(start)  # the next bank's keys are the released model's
            return found[rows]

        found = view.by_negatives(method, self.negatives, images, read).double().numpy()
        return found[:, 0], found[:, 1]

    def _climb(self, method: SSLMethod, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (B,) of pixels (2 pairs, B, C, H, W) before and after G steps."""
        with torch.no_grad():
            before = self._loss(method, pixels)
        if self.ascend == "parameters":
            climb(method, lambda: self._loss(method, pixels), self.steps, self.lr)
        else:
            for _ in range(self.steps):
                pixels = pixels.detach().requires_grad_(True)
                # One image's gradient does not depend on its batch: the sum keeps its scale.
                (grad,) = torch.autograd.grad(self._loss(method, pixels).sum(), pixels)
                pixels = pixels + self.lr * grad
        with torch.no_grad():
            return before, self._loss(method, pixels)

    def _loss(self, method: SSLMethod, pixels: Tensor) -> Tensor:
        z = method.encoder(pixels.flatten(0, 1)).view(*pixels.shape[:2], -1)
        each = [
            read_losses(method, a, b, self.loss)
            for a, b in zip(z[: self.pairs], z[self.pairs :], strict=True)
        ]
        return torch.stack(each).mean(dim=0)
