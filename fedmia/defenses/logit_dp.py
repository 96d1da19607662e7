"""Logit-DP on the client (Kong, Munoz Medina, Ribero, 2023): DP-SGD for a contrastive loss.

A batch of n images has 2n unit outputs. Their similarities are s_ab, p(a) is the other view of a's
image, and P_ab = softmax over b != a of s_ab / T. The batch's NT-Xent has the gradient

    G = 1/(2T) sum_a sum_{b != a} (P_ab - [b = p(a)]) v_ab,    v_ab = grad s_ab clipped to norm B.

Only v is clipped, as in the paper's Algorithm 1: a factor of two images alone. How far a further
image x, with two outputs beside the N = 2(n - 1) others, moves G, with k = e^(2/T):

1. The terms of x's own anchors: 2 (1 - P) B each, and 1 - P <= N k / (1 + N k): 4 B in all.
2. x takes a share q_a of the softmax of every other anchor, whose other shares fall to (1 - q_a) of
   what they were: 2 q_a B each.
3. q_a = r_a / (1 + r_a), where r_a is the mass of x over that of the others; q is concave in r, so
   sum_a q_a <= R / (1 + R / N) for any R >= sum_a r_a.
4. R = 2 h k always, with h = N / (N - 1). But not every output can be near x and far from all
   others. By Jensen the others' mass is at least (N - 1) exp((N a.m - 1) / ((N - 1) T)), m the mean
   of the outputs, so r_a is at most the sum over both x of exp(a.u / T + 1 / ((N - 1) T)) / (N - 1)
   with u = x - h m. Of length l, a.u is in [-l, l] and its mean m.u <= l (1 - l) / h; e^y is under
   its chord, so the mean of exp(a.u / T) is at most cosh(l / T) + (1 - l) / h sinh(l / T). Its two
   exponentials are largest at l = 1 + h - T (0 if negative) and l = T: `_spread`.

So a batch of n moves by D_n = B / (2T) (4 N k / (1 + N k) + 2 R / (1 + R / N)), which stays bounded
as n grows. (4 is not in the paper, which replaces an image, has one anchor an image and R = k.)

Batches are Poisson samples, whose size n is random, so a step sums w_n G with w_n = min(1, E / n)
and E the expected size: large batches need no more noise. One image moves w_n G by at most
w_n D_n + (w_(n-1) - w_n) |G_(n-1)|, and the sensitivity is the largest of it over all n. For any
function of that sensitivity, whether a sum over records or not, the accountants of Poisson samples
hold: given who else is in the batch, the step is N(f, s^2) or N(f', s^2) with |f - f'| bounded
(Mironov, Talwar, Zhang, 2019, Theorem 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fedmia.defenses._persample import (
    check_layers,
    gradient_norms,
    sample_rate,
    silence_nonfinite,
)
from fedmia.defenses.base import Metrics, TrainingConditions
from fedmia.defenses.dpsgd import DPSGD, refuse_added_losses
from fedmia.records.privacy import Epsilon
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.simclr import SimCLR, SimCLRMethod, nt_xent
from fedmia.ssl.train import Batch, Job

if TYPE_CHECKING:
    from opacus.optimizers import DPOptimizer

PAIRS = 512  # pairs of outputs whose gradients are formed at once, at most
LARGEST = 300.0  # exponent; beyond it a bound says nothing anyway
COUPLED = (
    "Unit: one image of the client, both its views. Neighbours differ in one image, replaced by a "
    "null record that is in no loss. The gradient of each similarity of a batch is clipped to "
    "{clip:.3g}, so that one image moves the weighted sum by at most {reach:.3g}, whatever the "
    "size of the batch (replaced by another image: by twice that). Public: the number of "
    "images, the sampling rate, the steps, the temperature. {rests}Covers the weights that "
    "leave the client, over all rounds, and no loss, norm or share of clipped gradients. Assumes "
    "that the client follows the protocol."
)
CENTRAL_LIMIT = "Heuristic: the gdp accountant is a central limit approximation. "


@dataclass(frozen=True)
class LogitDP(DPSGD):
    """Logit-DP: DP-SGD for SimCLR's loss, by the gradients of pairwise similarities.

    One image moves the sum of a step by a bounded amount, however many images its batch has. A step
    on n images costs 2n(2n - 1) gradients of an output. On a loss of single images (MoCo, BYOL,
    MAE) no similarity couples images of a batch, and it is `dpsgd`.
    """

    paper: ClassVar[str] = "Kong, Munoz Medina, Ribero, 2023, arXiv 2310.03104"

    max_grad_norm: float = option(
        1.0, "B, largest L2 norm of the gradient of one similarity; without coupling: of an image",
        gt=0,
    )  # fmt: skip

    def check(self, setting: TrainingConditions) -> None:
        ssl = setting.ssl
        refuse_added_losses(ssl)
        if setting.norm == "group" and isinstance(ssl, SimCLR) and ssl.head_norm != "batch":
            return
        if setting.norm == "group" and ssl.coupled:
            raise InputError(
                "logit-dp bounds a loss of pairwise similarities of a batch: use ssl simclr "
                "without batch norm in its head, or a method whose loss is of single images"
            )
        super().check(setting)

    def check_method(self, method: SSLMethod, channels: int, size: int) -> None:
        if not isinstance(method, SimCLRMethod):
            return super().check_method(method, channels, size)
        check_layers(method, lambda trial, views: trial.encoder(torch.cat(views)), channels, size)

    def sensitivity(self, job: Job) -> float:
        if not isinstance(job.method, SimCLRMethod):
            return super().sensitivity(job)
        size = len(job.images)
        expected = sample_rate(size, job.train.batch_size) * size
        unit = batch_sensitivity(size, expected, job.method.spec.temperature)
        return self.max_grad_norm * unit

    def step(
        self, job: Job, private: DPOptimizer, views: Batch, most: int
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(job.method, SimCLRMethod):
            return super().step(job, private, views, most)
        losses, norms, sums = similarity_gradients(job.method, views, self.max_grad_norm, most)
        expected = float(private.expected_batch_size or 1)
        weight = min(1.0, expected / max(len(losses), 1))
        for parameter, total in zip(job.method.trainable(), sums, strict=True):
            parameter.summed_grad = weight * total  # type: ignore[attr-defined]
        private.add_noise()
        for parameter in private.params:
            parameter.grad /= expected
        if private.step_hook is not None:
            private.step_hook(private)
        private.original_optimizer.step()
        return losses, norms

    def train(self, job: Job, memory: dict[str, Any]) -> Metrics:
        metrics = super().train(job, memory)
        if isinstance(job.method, SimCLRMethod):
            memory["remembers"] = ""  # its bank shapes no gradient and never leaves the client
            memory["reach"] = self.sensitivity(job)
        return metrics

    def privacy(self, memory: dict[str, Any]) -> Epsilon | None:
        statement = super().privacy(memory)
        if statement is None or "reach" not in memory:
            return statement
        rests = CENTRAL_LIMIT if self.accountant == "gdp" else ""
        text = COUPLED.format(clip=self.max_grad_norm, reach=memory["reach"], rests=rests)
        return replace(statement, assumptions=text)


def similarity_gradients(
    method: SimCLRMethod, views: Batch, clip: float, most: int
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The gradient of a batch's summed NT-Xent, that of each similarity clipped.

    An image with an output that is not finite is a null record: in a softmax it would be the end of
    all others' gradients.

    Args:
        method: in training, with Opacus's hooks on its layers.
        views: two of each image, (n, C, H, W) in [0, 1]; n may be 0.
        clip: B, largest L2 norm of the gradient of one similarity.
        most: outputs whose gradients fit into memory at once.

    Returns:
        losses (n,) of the others, norms of their similarities' gradients before the clip
        (2n(2n - 1) / 2,), and the sum for each trained parameter.
    """
    weights, T = method.trainable(), method.spec.temperature
    sums, both = [torch.zeros_like(w) for w in weights], torch.cat(views)
    with torch.no_grad():
        outputs = method.encoder(both) if len(both) else both.flatten(1)
        finite = outputs.isfinite().all(dim=1).view(2, -1).all(dim=0).repeat(2)
        both, outputs, count = both[finite], outputs[finite], int(finite.sum()) // 2
        if not count:
            return both.new_zeros(0), both.new_zeros(0), sums
        method.remember(outputs[:count])
        z = F.normalize(outputs, dim=1)
        losses = nt_xent(z[:count], z[count:], T)
        shares = (z @ z.T / T).fill_diagonal_(-torch.inf).softmax(dim=1)
        partner = torch.eye(2 * count, device=z.device).roll(count, dims=1)
        factors = (shares - partner) / (2 * T)
        factors = factors + factors.T  # a similarity is a logit of both its anchors
    first, second = torch.triu_indices(2 * count, 2 * count, offset=1, device=z.device)
    norms, few = [], max(1, min(most // 2, PAIRS))
    for i, j in zip(first.split(few), second.split(few), strict=True):
        pixels = both[torch.cat([i, j])].requires_grad_()
        a, b = F.normalize(method.encoder(pixels), dim=1).split(len(i))
        (a * b).sum().backward(inputs=[pixels])  # on the way Opacus notes each output's gradient
        for w in weights:
            mine, other = w.grad_sample.split(len(i))  # type: ignore[attr-defined]
            w.grad_sample = mine + other  # type: ignore[attr-defined]
        norms.append(silence_nonfinite(weights, gradient_norms(weights)))
        scaled = factors[i, j] * (clip / norms[-1].clamp(min=clip))
        for w, total in zip(weights, sums, strict=True):
            total += torch.tensordot(scaled, w.grad_sample, dims=1)  # type: ignore[attr-defined]
            w.grad_sample = None  # type: ignore[attr-defined]
    return losses, torch.cat(norms), sums


def batch_sensitivity(images: int, expected: float, temperature: float) -> float:
    """How far one image moves the weighted sum of a step, in units of B (see the module).

    Args:
        images: that the client holds; no batch has more.
        expected: E, mean size of a batch, over 0.
        temperature: T of NT-Xent, over 0.

    Returns:
        The L2 sensitivity over all sizes of a batch.
    """
    n = np.arange(1, images + 1, dtype=np.float64)
    others, T = 2 * (n - 1), temperature
    k = math.exp(min(2 / T, LARGEST))
    weights = np.minimum(1.0, expected / np.arange(1, images + 1))
    before = np.append(1.0, weights[:-1])
    moved = (4 * _negatives(others, k) + 2 * share_bound(others, k, T)) / (2 * T)
    whole = others * 2 * _negatives(others - 2, k) / (2 * T)  # |G| of the batch without it
    return float((weights * moved + (before - weights) * whole).max())


def _negatives(count: NDArray[np.float64], k: float) -> NDArray[np.float64]:
    """Largest share of an anchor's softmax that `count` negatives beside one positive take."""
    mass = np.maximum(count, 0.0) * k
    return np.asarray(mass / (1 + mass))


def share_bound(others: NDArray[np.float64], k: float, T: float) -> NDArray[np.float64]:
    """Bound on the sum over the other anchors of the share that a new image takes: steps 3 and 4.

    Args:
        others: numbers of anchors.
        k: e^(2 / T).
        T: temperature of NT-Xent, over 0.

    Returns:
        The bound for each number.
    """
    N = np.maximum(others, 2.0)
    h = N / (N - 1)
    near = np.exp(np.minimum(1 / ((N - 1) * T), LARGEST)) * _spread(h, T)
    R = 2 * h * np.minimum(k, near)
    return np.where(others > 0, R / (1 + R / N), 0.0)


def _spread(h: NDArray[np.float64], T: float) -> NDArray[np.float64]:
    """Bound on cosh(l / T) + (1 - l) / h sinh(l / T) over l >= 0, each exponential at its most."""
    at = np.maximum(1 + h - T, 0.0)
    rising = np.exp(np.minimum(at / T, LARGEST)) * (1 + (1 - at) / h) / 2
    return np.asarray(rising + (1 - 1 / h + T / (math.e * h)) / 2)
