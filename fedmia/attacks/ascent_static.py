"""Static ascent: step up the loss of the images under test on the released model, watch it rise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fedmia.attacks._reference import distinct
from fedmia.attacks.base import Attack, Known, Scores, negatives_option
from fedmia.attacks.grad_norm import GradNorm
from fedmia.data.images import digests
from fedmia.records import LOSS_BEFORE
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.ssl.base import SSLMethod, outputs
from fedmia.threat import Threat, WhiteBox

LOSSES = ("training", "algorithm1")
Auto = Literal["auto"]
Climbs = Sequence[tuple[int, float]]  # steps and rate of each


RATES = (0.003, 0.01, 0.03, 0.1)  # learning rates tried by `auto`, up to the paper's


@dataclass
class AscentStatic(Attack):
    """One small step of gradient ascent on the released model, and how far the loss rises in it.

    A statistic of the gradient, not the paper's ascent of many steps: `auto` tries RATES on the
    known images, and `choose_gentlest` takes the lowest as a rule. So small a step raises the loss
    by the rate times the product of the image's gradient with the mean one of its batch: for one
    image alone, the square of its norm. Hence the control `grad-norm`, beside the loss before.
    `steps` and `lr` ask for a longer climb, which the paper adapts to the model.
    """

    paper: ClassVar[str] = (
        "Chen et al., Federated Contrastive Learning, Sec. IV-C, Eq. 8, Fig. 10-12"
    )
    needs: ClassVar[Threat] = Threat("white_box", "outsider")
    main: ClassVar[bool] = True
    looks_at: ClassVar[tuple[str, ...]] = ("ascent",)
    act: ClassVar[str] = "ascent"
    without: ClassVar[Mapping[str, str]] = {
        LOSS_BEFORE: "the loss before the climb",
        GradNorm.name: "the norm of its gradient",
    }
    by_round: ClassVar[bool] = False
    readings: ClassVar[tuple[str, ...]] = ("rise", "level")

    steps: int = option(1, "G, ascent steps on each batch under test", ge=1)
    lr: float | Auto = option(
        "auto", "learning rate of the ascent (auto: chosen on known images)", gt=0
    )
    batch: int = option(8, "images climbed together, from one copy of the released model", ge=1)
    pairs: int = option(4, "pairs of fixed views an image", ge=1)
    ascend: str = option(
        "parameters",
        "what climbs: the model's parameters (Algorithm 1) or the pixels (Eq. 8 to the letter)",
        choices=("parameters", "pixels"),
    )
    negatives: str = negatives_option()
    loss: str = option("training", "the loss that is climbed and read", choices=LOSSES)
    reading: str = option(
        "rise",
        "score: minus the rise of the loss in the climb (rise), or minus the loss after it (level)",
        choices=("rise", "level"),
    )

    @property
    def learns(self) -> bool:
        return self.lr == "auto"

    @property
    def choices(self) -> dict[str, Any]:
        return {"lr": self._rate} if self.learns else {}

    def fit(self, view: WhiteBox, known: Known, rng: np.random.Generator) -> None:
        images, truth = known.both()
        self._spare = distinct(images if view.held is None else torch.cat([view.held, images]))
        self._rate = float(RATES[0] if self.lr == "auto" else self.lr)
        self._norm = GradNorm(negatives=self.negatives)
        self._norm.fit(view, known, rng)
        if self.learns:
            climbs = tuple((self.steps, lr) for lr in RATES)
            # Climbs of the parameters share their first pass.
            apart = len(climbs) - 1 if self.ascend == "pixels" else 0
            self._charge(view, self._spare, self.steps * len(climbs) + apart)
            # Some of the spare images, which all climb, as in the model's other fits.
            losses = self._climb_shared(view, self._spare, images, climbs)
            losses_by_rate = dict(zip(RATES, np.split(losses, len(RATES)), strict=True))
            self._rate = choose_gentlest(losses_by_rate, truth, self.reading)

    def score(self, view: WhiteBox, images: Tensor) -> Scores:
        """Minus the reading of each image. Batches are formed by content, not by order."""
        losses = self.by_step(view, images)
        return losses[0] - losses[-1] if self.reading == "rise" else -losses[-1]

    def score_without(self, view: WhiteBox, images: Tensor) -> Scores:
        """(N, 2) minus the loss before the climb, and what `grad-norm` says."""
        return np.column_stack([-self.by_step(view, images)[0], self._norm.score(view, images)])

    def score_sets(self, view: WhiteBox, sets: Tensor, known: Known) -> Scores:
        """(S, 3): each set is climbed alone, from the released model, and compared with known
        members climbed in sets of as many (Sec. V-B4): their mean reading minus the set's own.
        Beside it their loss before the climb minus the set's own, and the set's `grad-norm`."""
        count, size = sets.shape[:2]
        climbs, start, method = [(self.steps, self._rate)], view.state(), view.copy_method()
        images = torch.cat([sets.flatten(0, 1), known.members])
        queries = 2 * self.pairs * (self.steps + 1) * len(images)
        view.charge(queries + view.bank_queries(self.negatives))

        def read(rows: Tensor) -> Tensor:
            # Sets under test hold none of the images held: they come first, whole. Known members
            # form their sets among those that meet the same negatives.
            set_losses = torch.full((len(rows), 2), torch.nan)
            for at in range(0, len(rows) - size + 1, size):  # what fills no set climbs harder
                method.load_shared(start)
                pixels = view.view_pixels(images[rows[at : at + size]], 2 * self.pairs)
                losses = self._climb(method, pixels, climbs).cpu()
                last = losses[-1] - losses[0] if self.reading == "rise" else losses[-1]
                set_losses[at : at + size] = torch.stack([losses[0], last], dim=1)
            method.load_shared(start)
            return set_losses

        set_losses = view.by_negatives(method, self.negatives, images, read).double()
        usual = set_losses[count * size :].nanmean(dim=0).nan_to_num()  # too few known: of none
        each = set_losses[: count * size].view(count, size, 2).mean(dim=1)
        norms = self._norm.score(view, sets.flatten(0, 1)).reshape(count, size).mean(axis=1)
        return np.column_stack([(usual - each).flip(1).numpy(), norms])

    def by_step(self, view: WhiteBox, images: Tensor) -> Scores:
        """Loss of each of uint8 (N, C, H, W) before its climb and after each step, (G + 1, N).

        Called after `fit`. 2 pairs (G + 1) queries for each image that climbs, scored or not, and
        `view.bank_queries`."""
        self._charge(view, images, self.steps)
        return self._climb_shared(view, images, images, [(self.steps, self._rate)])

    def _climb_shared(
        self, view: WhiteBox, climbing: Tensor, images: Tensor, climbs: Climbs
    ) -> Scores:
        """Losses of images among those climbing, (G + 1, N) of each climb, one below the other;
        equal climbs of one model run once."""
        names, beside = digests(climbing.numpy()), digests(self._spare.numpy())
        how = repr((dataclasses.replace(self, steps=1, lr=1.0, reading="rise"), *climbs))
        key = (how, *sorted(names), None, *beside)
        rows = view.shared(key, climbing, lambda x: self._climbs(view, x, climbs))
        at = {name: i for i, name in enumerate(names)}
        return np.asarray(rows[[at[name] for name in digests(images.numpy())]].numpy().T)

    def _charge(self, view: WhiteBox, images: Tensor, steps: int) -> None:
        every, groups = self._with_spares(images), 0
        for rows in view.groups(every, self.negatives):
            for chosen, beside in self._batches(every, len(images), rows):
                groups += len(chosen) + len(beside)
        queries = 2 * self.pairs * (steps + 1) * groups
        view.charge(queries + view.bank_queries(self.negatives))

    def _with_spares(self, images: Tensor) -> Tensor:
        """The images, then those spare ones that are not among them."""
        names = set(digests(images.numpy()))
        others = [name not in names for name in digests(self._spare.numpy())]
        return torch.cat([images, self._spare[others]])

    def _batches(
        self, every: Tensor, n: int, rows: Tensor
    ) -> Iterator[tuple[list[int], list[int]]]:
        """Rows of the first `n` images that climb together, and of those beside them, unscored."""
        # A step is along the mean of a batch, so fewer images would climb harder: a short batch is
        # filled with the first of the call by content, then with spare ones.
        names = digests(every.numpy())
        order = sorted((i for i in rows.tolist() if i < n), key=names.__getitem__)
        spare = [i for i in rows.tolist() if i >= n]
        for at in range(0, len(order), self.batch):
            chosen = order[at : at + self.batch]
            lacking = self.batch - len(chosen) if self.ascend == "parameters" else 0
            yield chosen, [*order[:at], *spare][:lacking]

    def _climbs(self, view: WhiteBox, images: Tensor, climbs: Climbs) -> Tensor:
        """Float64 (N, losses), uncounted."""
        every, start, method = self._with_spares(images), view.state(), view.copy_method()

        def read(rows: Tensor) -> Tensor:
            width = sum(steps + 1 for steps, _ in climbs)
            all_losses = torch.zeros(len(every), width, dtype=torch.float64)
            for chosen, beside in self._batches(every, len(images), rows):
                method.load_shared(start)
                pixels = view.view_pixels(every[[*chosen, *beside]], 2 * self.pairs)
                losses = self._climb(method, pixels, climbs)
                all_losses[chosen] = losses[:, : len(chosen)].T.double().cpu()
            method.load_shared(start)  # the next bank's keys are the released model's
            return all_losses[rows]

        return view.by_negatives(method, self.negatives, every, read)[: len(images)]

    def _climb(self, method: SSLMethod, pixels: Tensor, climbs: Climbs) -> Tensor:
        """Losses (steps + 1, B) of pixels (2 pairs, B, C, H, W) before and after each step of each
        climb, one below the other. All begin from the same weights, with the same gradient."""
        rows: list[Tensor] = []

        def loss() -> Tensor:
            rows.append(self._loss(method, pixels))
            return rows[-1]

        if self.ascend == "parameters":
            weights: list[Tensor] = list(method.trainable())
            start, first = [w.detach().clone() for w in weights], self._loss(method, pixels)
            grads = torch.autograd.grad(first.mean(), weights, allow_unused=True)
            for at, (steps, lr) in enumerate(climbs):
                if at:
                    with torch.no_grad():
                        torch._foreach_copy_(weights, start)
                rows.append(first)
                step_up(weights, grads, lr)
                climb(weights, loss, steps - 1, lr)
                with torch.no_grad():
                    loss()
        else:
            plain = pixels
            for steps, lr in climbs:
                pixels = plain
                for _ in range(steps):
                    pixels = pixels.detach().requires_grad_(True)
                    # One image's gradient does not depend on its batch: the sum keeps its scale.
                    (grad,) = torch.autograd.grad(loss().sum(), pixels)
                    pixels = pixels + lr * grad
                with torch.no_grad():
                    loss()
        return torch.stack([one.detach() for one in rows])

    def _loss(self, method: SSLMethod, pixels: Tensor) -> Tensor:
        z1, z2 = outputs(method.encoder, pixels.flatten(0, 1)).chunk(2)
        return read_losses(method, z1, z2, self.loss).view(self.pairs, -1).mean(dim=0)


def read_losses(method: SSLMethod, z1: Tensor, z2: Tensor, reading: str) -> Tensor:
    """Loss of each image, (B,), differentiable, of encoder outputs (B, P) of its two views.

    `training`: the method's own loss (temperature, positive pair in the denominator).
    `algorithm1`: lines 12-14 of Algorithm 1 (Chen et al.) to the letter: no temperature, and only
    the queue in the denominator.

    Args:
        method: supplies the bank of negatives, and for `training` the temperature.
        z1: of the first views.
        z2: of the second views.
        reading: one of LOSSES.

    Returns:
        losses, summed over both directions of the pair under `algorithm1`.

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
    """`read_losses` of two views (B, C, H, W) in [0, 1], which pass through the encoder at once."""
    z1, z2 = outputs(method.encoder, torch.cat([view1, view2])).split(len(view1))
    return read_losses(method, z1, z2, reading)


def climb(weights: Sequence[Tensor], loss: Callable[[], Tensor], steps: int, lr: float) -> None:
    """`steps` of plain SGD on -mean(loss).

    Args:
        weights: change in place; they are left without gradients.
        loss: losses `(B,)` under the current weights, called once a step.
        steps: 0 leaves the weights as they are.
        lr: learning rate.
    """
    for _ in range(steps):
        step_up(weights, torch.autograd.grad(loss().mean(), weights, allow_unused=True), lr)


@torch.no_grad()
def step_up(weights: Sequence[Tensor], grads: Sequence[Tensor | None], lr: float) -> None:
    """One step along gradients; weights without one stay."""
    pairs = [(w, g) for w, g in zip(weights, grads, strict=True) if g is not None]
    if pairs:
        torch._foreach_add_([w for w, _ in pairs], [g for _, g in pairs], alpha=lr)


def choose_gentlest(
    losses_by_rate: Mapping[float, Scores], truth: NDArray[np.int64], reading: str
) -> float:
    """A rate, chosen by the AUC of the reading on known images.

    Of those within one standard error of the best the lowest: some dozen known images cannot rank
    better ones, and too strong a climb separates nothing. One after which the mean loss is no
    higher than before is no climb, and taken only if all are so.

    Args:
        losses_by_rate: rate -> losses of the known images by step, (G + 1, K).
        truth: (K,), 1 = member.
        reading: `rise` or `level`.

    Returns:
        The rate.
    """
    rises = {lr: losses[-1] - losses[0] for lr, losses in sorted(losses_by_rate.items())}
    rising = [lr for lr, rise in rises.items() if rise.mean() > 0] or [*rises]
    readings = {lr: rises[lr] if reading == "rise" else losses_by_rate[lr][-1] for lr in rising}
    from sklearn.metrics import roc_auc_score

    aucs = {lr: float(roc_auc_score(truth, -losses)) for lr, losses in readings.items()}
    n, m = truth.sum(), len(truth) - truth.sum()
    error = float(np.sqrt((n + m + 1) / (12 * n * m)))  # of an AUC of so many images under the null
    return next(lr for lr, auc in aucs.items() if auc >= max(aucs.values()) - error)
