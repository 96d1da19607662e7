"""Per-image gradients, clipped and noised by Opacus, for one round of a client's training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.modules.batchnorm import _BatchNorm

from fedmia.seeding import torch_rng
from fedmia.settings.errors import InputError
from fedmia.ssl import TwoView
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.train import Batch, BatchViews, Job, group_views

if TYPE_CHECKING:
    from opacus.optimizers import DPOptimizer


# Bytes of per-image gradients at once: 23 images of a ResNet-18.
GRADIENT_BYTES = 1 << 31


def images_at_once(weights: list[torch.nn.Parameter]) -> int:
    """Images whose gradients fit into GRADIENT_BYTES; Opacus may hold two of each, one a forward
    pass."""
    return max(1, GRADIENT_BYTES // (2 * sum(w.numel() * w.element_size() for w in weights)))


def sample_rate(images: int, batch_size: int) -> float:
    """Probability with which each image enters a step's batch: B/N, at most 1."""
    return min(1.0, batch_size / images)


def poisson_batches(job: Job) -> Iterator[Batch]:
    """Pairs of views of every step's batch; each image enters each step with `sample_rate`.

    As many steps as `Job.batches` takes; sizes vary and can be 0. Draws from `job.rng`.
    """
    pixels = torch.from_numpy(job.images.copy()).to(job.device)
    return group_views(pixels, job.augment, _draw_poisson(job, len(pixels)))


def _draw_poisson(job: Job, count: int) -> Iterator[BatchViews]:
    """Every step's batch, drawn epoch by epoch: first who is in it, then the uniforms."""
    size = job.train.batch_size
    for _ in range(job.train.local_epochs):
        rows = poisson_rows(job.rng, count, sample_rate(count, size), -(-count // size))
        sizes = [len(step) for step in rows]
        uniforms = job.rng.random((2, sum(sizes), job.augment.draws), dtype=np.float32)
        ends = np.cumsum(sizes)[:-1]
        yield from zip(rows, np.split(uniforms, ends, axis=1), strict=True)


def poisson_rows(
    stream: np.random.Generator, records: int, rate: float, steps: int
) -> list[NDArray[np.int64]]:
    """Rows of the records that each of `steps` takes; each enters each with probability `rate`."""
    chosen = stream.random((steps, records)) < rate
    return [step.nonzero()[0] for step in chosen]


@contextmanager
def private_optimizer(
    job: Job, noise: float, clip: float, expected: float, generator: torch.Generator
) -> Iterator[DPOptimizer]:
    """Opacus's optimizer around `job.optimizer`, whose state stays the job's own.

    Hooks live on the trained modules of `job.method` while the context is open: its key encoder
    is frozen, so untouched. Afterwards no trace of Opacus is left.

    Args:
        noise: noise multiplier; the sum of clipped gradients gets deviation noise * clip.
        clip: largest L2 norm of one image's gradient.
        expected: mean size of a batch, by which the noisy sum is divided.
        generator: source of the noise, on the job's device.

    Raises:
        InputError: the method's steps minimise more than its `losses`.
    """
    from opacus import GradSampleModule  # here, because it takes seconds to import
    from opacus.optimizers import DPOptimizer

    refuse_step_losses(job.method)  # shadows come here without `check_layers`
    hooked = GradSampleModule(job.method, loss_reduction="sum")
    try:
        yield DPOptimizer(
            job.optimizer,
            noise_multiplier=noise,
            max_grad_norm=clip,
            expected_batch_size=expected,  # type: ignore[arg-type]  # only divided by
            generator=generator,
        )
    finally:
        hooked.to_standard_module()
        for weight in job.method.parameters():
            for name in ("grad_sample", "summed_grad", "_forward_counter"):
                weight.__dict__.pop(name, None)
        for module in job.method.modules():
            for name in ("activations", "max_batch_len"):
                module.__dict__.pop(name, None)


def private_step(job: Job, private: DPOptimizer, views: Batch, most: int) -> tuple[Tensor, Tensor]:
    """One step on one Poisson batch, of at most `most` images' gradients at once.

    Clipped gradients of its parts are summed before there is noise, so the parts do not tell.

    Returns:
        losses and gradient norms of the images, (B,) each.
    """
    parts = list(zip(*(view.split(most) for view in views), strict=True))
    weights, losses, norms, latest = job.method.trainable(), [], [], []
    for last, part in zip([*[False] * (len(parts) - 1), True], parts, strict=True):
        losses.append(image_gradients(job, part))
        norms.append(silence_nonfinite(weights, gradient_norms(weights)))
        # What is remembered of an image that is not finite would be the end of later gradients.
        latest.append([torch.nan_to_num(rows, 0.0, 0.0, 0.0) for rows in job.method.latest])
        if not last:
            private.signal_skip_step()
        private.step()
        if not last:
            private.zero_grad(set_to_none=True)
    job.method.latest = tuple(torch.cat(rows) for rows in zip(*latest, strict=True))
    return torch.cat(losses), torch.cat(norms)


def refuse_step_losses(method: SSLMethod) -> None:
    """Raise InputError for a method from outside whose steps minimise more than its `losses`."""
    if type(method).step_losses not in (SSLMethod.step_losses, TwoView.step_losses):
        raise InputError(
            f"what {type(method).__name__}.step_losses adds has no gradient of each image here; it "
            "must be part of the method's losses"
        )


def check_layers(
    method: SSLMethod, rows: Callable[[SSLMethod, Batch], Tensor], channels: int, size: int
) -> None:
    """Refuse a method whose steps minimise more than its `losses`, and a network of which one image
    moves the loss of another, or a weight has no gradient of one image: tried on two images of
    noise, with a copy of `method`.

    Args:
        rows: of a method and a batch, what has a row an image and is to rest on that image alone.

    Raises:
        InputError: naming the method, the layer or the weight.
    """
    from opacus import GradSampleModule

    refuse_step_losses(method)
    trial, draw = copy.deepcopy(method).train(), torch_rng(0, "trial")
    noise = torch.rand(2, 2, channels, size, size, generator=draw)
    views: Batch = noise[0].requires_grad_(), noise[1].requires_grad_()
    try:
        moved = torch.autograd.grad(rows(trial, views)[0].sum(), views, allow_unused=True)
        mixes = any(grad is not None and bool(grad[1].any()) for grad in moved)
        if not mixes:
            GradSampleModule(trial, loss_reduction="sum")
            rows(trial, views).sum().backward(inputs=views)
    except Exception as error:  # of a network from outside, or of what Opacus cannot take
        why = " ".join(str(error).split())
        raise InputError(f"no gradient of one image can be found: {why}") from error
    if mixes:
        norms = [n for n, m in trial.named_modules() if isinstance(m, _BatchNorm)]
        what = f"layer '{norms[0]}'" if norms else "a layer of the network"
        raise InputError(
            f"{what} mixes the images of a batch, so no gradient belongs to one image; group norm "
            "mixes none"
        )
    for name, weight in zip(trial.shared_parameters(), trial.trainable(), strict=True):
        if not isinstance(getattr(weight, "grad_sample", None), Tensor):
            why = "is not used" if weight.requires_grad else "is frozen"
            raise InputError(
                f"weight '{name}' {why}, and all weights that are sent are to be trained here; "
                "gaussian and laplace, on the update, take any"
            )


def silence_nonfinite(weights: list[torch.nn.Parameter], norms: Tensor) -> Tensor:
    """`norms` (B,), once each image whose gradient is not finite is a null record: it has no norm
    to be clipped by, and would pass on what it is."""
    odd = ~norms.isfinite()
    for weight in weights:  # whether there is one is not asked: a GPU is not waited for
        gradients: Tensor = weight.grad_sample  # type: ignore[attr-defined]
        gradients.masked_fill_(odd.view(-1, *[1] * weight.dim()), 0.0)
    return norms.masked_fill(odd, 0.0)


def image_gradients(job: Job, views: Batch) -> Tensor:
    """Fill every weight's `grad_sample` from one batch, which may be empty; the losses (B,).

    Both forward passes of a symmetric loss belong to the same images: Opacus sums them in one
    record of each.
    """
    if len(views[0]):
        # The way back ends at the views: it passes Opacus's hook of every layer, which find each
        # image's gradient, and computes none of the batch's.
        for view in views:
            view.requires_grad_()
        losses = job.method.losses(*views).float()
        losses.sum().backward(inputs=views)
        return losses.detach()
    for weight in job.method.trainable():
        weight.grad_sample = weight.new_zeros((0, *weight.shape))  # type: ignore[attr-defined]
    return views[0].new_zeros(0)


def gradient_norms(weights: list[torch.nn.Parameter]) -> Tensor:
    """L2 norm of each image's whole gradient, (B,), from `grad_sample`."""
    parts = [vector_norm(w.grad_sample.flatten(1), dim=1) for w in weights]  # type: ignore[attr-defined]
    return vector_norm(torch.stack(parts), dim=0)
