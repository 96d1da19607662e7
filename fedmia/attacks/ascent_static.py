"""Static ascent: climb the loss of the images under test on the released model, watch it rise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks.base import Attack, Known, Scores, negatives_option
from fedmia.data.images import digests
from fedmia.errors import InputError
from fedmia.settings.option import option
from fedmia.ssl.base import SSLMethod
from fedmia.threat import Threat, WhiteBox

LOSSES = ("training", "algorithm1")


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
    negatives: str = negatives_option()
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

    def score_sets(self, view: WhiteBox, sets: Tensor, known: Known) -> Scores:
        """(S, 2): each set is climbed alone, from the released model, and compared with known
        members climbed in sets of as many (Sec. V-B4): their mean rise minus the set's own. Beside
        it the twin, which takes no step: their loss before the climb minus the set's own."""
        count, size = sets.shape[:2]
        start, method = view.state(), view.copy_method()
        images = torch.cat([sets.flatten(0, 1), known.members])
        view.charge(view.bank_queries(self.negatives) + 2 * self.pairs * len(images) * self.steps)

        def read(rows: Tensor) -> Tensor:
            # Sets under test hold none of the images held: they come first, whole. Known members
            # form their sets among those that meet the same negatives.
            found = torch.full((len(rows), 2), torch.nan)
            for at in range(0, len(rows) - size + 1, size):  # what fills no set climbs harder
                method.load_shared(start)
                pixels = view.view_pixels(images[rows[at : at + size]], 2 * self.pairs)
                before, after = self._climb(method, pixels)
                found[at : at + size] = torch.stack([before, after - before], dim=1).float().cpu()
            method.load_shared(start)
            return found

        found = view.by_negatives(method, self.negatives, images, read).double()
        usual = found[count * size :].nanmean(dim=0).nan_to_num()  # too few known: of none
        each = found[: count * size].view(count, size, 2).mean(dim=1)
        return np.asarray((usual - each).flip(1).numpy())

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


def read_losses(method: SSLMethod, z1: Tensor, z2: Tensor, reading: str) -> Tensor:
    """Per-image loss (B,) of encoder outputs (B, P) in the reading asked for.

    `training`: the method's own loss (temperature, positive pair in the denominator).
    `algorithm1`: lines 12-14 of Algorithm 1 (Chen et al.) to the letter: no temperature, and only
    the queue in the denominator.

    Raises:
        InputError: `algorithm1` on a method without a queue.
    """
    if reading == "training":
        return method.output_losses(z1, z2)
    queue = getattr(method, "queue", None)
    if queue is None:
        raise InputError("loss 'algorithm1' needs a method with a queue (moco, mocov2)")
    z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    positive = (z1 * z2).sum(dim=1)
    first = torch.logsumexp(z1 @ queue.to(z1.dtype).T, dim=1) - positive
    return first + torch.logsumexp(z2 @ queue.to(z2.dtype).T, dim=1) - positive


def attack_losses(method: SSLMethod, view1: Tensor, view2: Tensor, reading: str) -> Tensor:
    """`read_losses` of two views (B, C, H, W) in [0, 1], in one forward pass."""
    z1, z2 = method.encoder(torch.cat([view1, view2])).split(len(view1))
    return read_losses(method, z1, z2, reading)


def climb(method: SSLMethod, loss: Callable[[], Tensor], steps: int, lr: float) -> None:
    """`steps` of plain SGD on -mean(loss), changing the method's shared weights in place."""
    weights = method.trainable()
    for _ in range(steps):
        grads = torch.autograd.grad(loss().mean(), weights, allow_unused=True)
        with torch.no_grad():
            pairs = [(w, g) for w, g in zip(weights, grads, strict=True) if g is not None]
            if pairs:
                torch._foreach_add_([w for w, _ in pairs], [g for _, g in pairs], alpha=lr)
