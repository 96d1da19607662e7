"""Local training: epochs of a self-supervised method over a client's own images."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedmia.data.images import ByteArray
from fedmia.seeding import SEEDED
from fedmia.settings import Options, option
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import LR, SSLMethod
from fedmia.ssl.optimizers import OPTIMIZERS, RATES, build, clip_gradients, set_decay

# Views augmented in one call, and the numbers that they may hold.
AUGMENTED, NUMBERS = 2048, 1 << 23

DROPS = (0.6, 0.8)  # shares of a run, MoCo v1's epochs 120 and 160 of 200

Batch = tuple[Tensor, Tensor]  # two views of each image, (B, C, H, W) each
BatchViews = tuple[NDArray[np.int64], NDArray[np.float32]]  # images (B,) and uniforms (2, B, P)


@dataclass(frozen=True)
class Train(Options):
    """How each client trains in a round."""

    local_epochs: int = option(10, "epochs over the client's images in a round", ge=1)
    batch_size: int = option(32, "images a step", ge=1)
    optimizer: str = option(
        "sgd",
        "sgd with momentum, adamw or lars; the last two leave biases and norms without decay, and "
        "lars without its scaling",
        choices=OPTIMIZERS,
    )
    lr: float | None = option(
        None,
        f"learning rate (none: the method's own, {RATES['adamw']:g} with adamw, {RATES['lars']:g} "
        "with lars)",
        gt=0,
    )
    momentum: float = option(0.9, "momentum of sgd and lars, beta1 of adamw", ge=0, lt=1)
    beta2: float = option(
        0.999, "beta2 of adamw (0.95 for MAE)", ge=0, lt=1, needs=("optimizer", "adamw")
    )
    weight_decay: float = option(5e-4, "weight decay: L2, with adamw apart from the loss", ge=0)
    weight_decay_end: float | None = option(
        None,
        "weight decay at the run's end, reached along a cosine; 0.4 in DINO (none: constant)",
        ge=0,
    )
    clip_grad: float | None = option(
        None,
        "largest L2 norm of each weight tensor's gradient in a step; 3 in DINO (none: no limit; "
        "dpsgd has its own)",
        gt=0,
    )
    schedule: str = option(
        "cosine",
        "learning rate over the whole run's steps; steps: a tenth from 60 % of them on and a "
        "hundredth from 80 % on, as MoCo v1",
        choices=("cosine", "constant", "steps"),
    )
    lr_end: float = option(
        0.0, "learning rate at which the cosine ends; 1e-6 in DINO", ge=0,
        needs=("schedule", "cosine"),
    )  # fmt: skip
    warmup_epochs: float = option(
        0.0, "epochs of the run in which the learning rate first rises from 0, linearly", ge=0
    )
    optimizer_state: str = option(
        "keep", "momenta of the optimizer across rounds", choices=("keep", "reset")
    )
    precision: str = option(
        "float32", "arithmetic of training (never of scores)", choices=("float32", "bfloat16")
    )

    @property
    def first_rate(self) -> float:
        """Learning rate at the first step, or where the warm-up ends."""
        return RATES.get(self.optimizer, LR) if self.lr is None else self.lr

    def fill_rate(self, own: float) -> Train:
        """These options with a number as `lr`: where none is given, SGD takes the method's own."""
        return self if self.lr else replace(self, lr=RATES.get(self.optimizer, own))

    def rate(self, step: int, total: int, epoch: int = 1) -> float:
        """Learning rate at a step, a function of the step alone.

        The cosine begins where the warm-up ends, as in the public code of MoCo v3, MAE and DINO.

        Args:
            step: global step, from 0.
            total: steps of the whole run.
            epoch: steps of an epoch, for the warm-up.

        Returns:
            >= 0.
        """
        warm = self.warmup_epochs * epoch
        if step < warm:
            return self.first_rate * step / warm
        if self.schedule == "constant":
            return self.first_rate
        if self.schedule == "steps":
            return self.first_rate * 0.1 ** sum(step >= share * total for share in DROPS)
        done = min((step - warm) / max(total - warm, 1), 1.0)
        return self.lr_end + (self.first_rate - self.lr_end) * 0.5 * (1 + math.cos(math.pi * done))

    def decay(self, step: int, total: int) -> float:
        """Weight decay at a step: the cosine has no warm-up, as in DINO.

        Args:
            step: global step, from 0.
            total: steps of the whole run.

        Returns:
            >= 0.
        """
        if self.weight_decay_end is None:
            return self.weight_decay
        done = min(step / max(total, 1), 1.0)
        gap = self.weight_decay - self.weight_decay_end
        return self.weight_decay_end + gap * 0.5 * (1 + math.cos(math.pi * done))


def layout_for(method: nn.Module, device: torch.device) -> torch.memory_format:
    """Memory layout of images and convolutions in training.

    A GPU's tensor cores take the channels last. Group norm works plane by plane: with it channels
    last take longer on a CPU in every net and precision, and on a GPU a ResNet-18 copies each map.
    With batch norm neither layout is always the better on a CPU.

    Args:
        method: the method to train.
        device: where it trains.

    Returns:
        Of the views and of the weights.
    """
    return (
        torch.contiguous_format
        if device.type == "cpu" or any(isinstance(m, nn.GroupNorm) for m in method.modules())
        else torch.channels_last
    )


def make_optimizer(method: SSLMethod, train: Train) -> torch.optim.Optimizer:
    """The optimizer of `train` over the parameters that the method trains."""
    options = {"lr": train.first_rate, "momentum": train.momentum, "beta2": train.beta2}
    return build(train.optimizer, method.trainable(), **options, decay=train.weight_decay)


@dataclass
class Job:
    """One client's training in one round; a defence may run it otherwise than `run` does.

    Attributes:
        method: what is trained; changes in place.
        optimizer: over the method's trained parameters.
        images: uint8 (N, C, H, W), the client's own.
        augment: augmentation of the views.
        train: options of the training.
        rng: stream of this (seed, round, partition): shuffling first, then views, epoch by epoch.
        step: global step at which this round starts; `run` moves it on.
        total_steps: steps of the whole run, for the schedule.
        device: where the training runs.
        after_backward: may change the gradients before each step; a strategy's client half.
        stop: asked before each step; True ends the round early (the run was interrupted).
        noise_source: of a defence's noise; `rng` comes from the same.
    """

    method: SSLMethod
    optimizer: torch.optim.Optimizer
    images: ByteArray
    augment: Augment
    train: Train
    rng: np.random.Generator
    step: int
    total_steps: int
    device: torch.device
    after_backward: Callable[[], None] = lambda: None
    stop: Callable[[], bool] = lambda: False
    noise_source: str = SEEDED

    def batches(self) -> Iterator[Batch]:
        """Pairs of views of every batch of the round; an epoch's last may be short."""
        pixels = torch.from_numpy(np.ascontiguousarray(self.images)).to(self.device)
        return group_views(pixels, self.augment, self._drawn(len(pixels), self.rng))

    def _drawn(self, count: int, rng: np.random.Generator) -> Iterator[BatchViews]:
        """Every batch of the round, drawn epoch by epoch: first the order, then uniforms."""
        size = self.train.batch_size
        for _ in range(self.train.local_epochs):
            order = rng.permutation(count)
            uniforms = rng.random((2, count, self.augment.draws), dtype=np.float32)
            for at in range(0, count, size):
                yield order[at : at + size], uniforms[:, at : at + size]

    def begin_step(self) -> None:
        """Learning rate and decay of the coming step, and where in the run the method is."""
        rate = self.train.rate(self.step, self.total_steps, self.epoch_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.train.weight_decay_end is not None:
            set_decay(self.optimizer, self.train.decay(self.step, self.total_steps))
        self.method.progress = min(self.step / max(self.total_steps, 1), 1.0)

    @cached_property
    def layout(self) -> torch.memory_format:
        """Memory layout of the views and of the weights."""
        return layout_for(self.method, self.device)

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.images) // self.train.batch_size)

    def forward(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Losses of a step in the precision asked for.

        Args:
            view1, view2: (B, C, H, W) in [0, 1].

        Returns:
            float32 (B,).
        """
        view1, view2 = (v.contiguous(memory_format=self.layout) for v in (view1, view2))
        half = self.train.precision == "bfloat16"
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=half)
        with autocast, running_statistics(self.method, len(view1)):
            return self.method.step_losses(view1, view2).float()

    def run(self) -> dict[str, float]:
        """Train; returns the mean loss over the round's images and the seconds spent."""
        started = time.perf_counter()
        sums, count = [], 0
        if not all(module.training for module in self.method.modules()):
            self.method.train()  # which sets each one, in five times the time
        if self.layout != torch.contiguous_format:  # all weights have that
            self.method.to(memory_format=self.layout)
        for view1, view2 in self.batches():
            if self.stop():
                break
            self.begin_step()
            losses = self.forward(view1, view2)
            self.optimizer.zero_grad(set_to_none=True)
            losses.mean(dim=-1).sum().backward()  # of several clients: the gradient of each
            self.after_backward()
            if self.train.clip_grad is not None:
                clip_gradients(self.method.trainable(), self.train.clip_grad)
            self.optimizer.step()
            self.method.after_step()
            self.step += 1
            sums.append(losses.detach().sum(dim=-1))  # read at the end: a GPU is not waited for
            count += losses.shape[-1]
        loss = self.mean_loss(sums, count)
        return {"loss": loss, "seconds": time.perf_counter() - started}

    def mean_loss(self, sums: Sequence[Tensor], count: int) -> float:
        """Mean loss of an image.

        Args:
            sums: of the losses of each step.
            count: number of losses.

        Returns:
            0 without any.
        """
        return sum(torch.stack(list(sums)).tolist()) / count if count else 0.0


@contextmanager
def running_statistics(method: nn.Module, images: int) -> Iterator[None]:
    """Let batch norms read their running statistics where one image has one value a channel: torch
    refuses to compute any of it. The last batch of an epoch may be one image.

    Args:
        method: whose batch norms in training mode are meant.
        images: how many the batch has; with more than one, nothing changes.

    Yields:
        Nothing.
    """

    def choose(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        layer.train(inputs[0].numel() > inputs[0].shape[1])

    modules = method.modules() if images == 1 else ()  # to walk them takes its time
    layers = [m for m in modules if isinstance(m, _BatchNorm) and m.training]
    hooks = [layer.register_forward_pre_hook(choose) for layer in layers]
    try:
        yield
    finally:
        for hook, layer in zip(hooks, layers, strict=True):
            hook.remove()
            layer.train()


def group_views(pixels: Tensor, augment: Augment, batches: Iterable[BatchViews]) -> Iterator[Batch]:
    """The views of every batch that was drawn.

    Batches are augmented several in one call, which a small one is not worth: a row of `Augment`
    does not depend on its batch.

    Args:
        pixels: the client's images, uint8 (N, C, H, W).
        augment: augmentation of the views.
        batches: indices and uniforms of each batch.

    Yields:
        two views of each batch, (B, C, H, W) in [0, 1].
    """
    most = min(AUGMENTED, NUMBERS // pixels[0].numel()) // 2
    waiting: list[BatchViews] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(rows) for rows, _ in waiting) >= most:
            yield from _augment_together(pixels, augment, waiting)
            waiting = []
    if waiting:
        yield from _augment_together(pixels, augment, waiting)


def _augment_together(
    pixels: Tensor, augment: Augment, batches: list[BatchViews]
) -> Iterator[Batch]:
    rows = torch.from_numpy(np.concatenate([rows for rows, _ in batches]))
    uniforms = torch.from_numpy(np.concatenate([u for _, u in batches], axis=1))
    chosen = pixels.index_select(0, rows.to(pixels.device, non_blocking=True))
    sizes = [len(rows) for rows, _ in batches]
    both = (view.split(sizes) for view in augment_views(chosen, augment, uniforms))
    return zip(*both, strict=True)


def draw_two_views(pixels: Tensor, augment: Augment, rng: np.random.Generator) -> Batch:
    """Two independent augmentations of uint8 (B, C, H, W), floats in [0, 1] on its device."""
    draws = rng.random((2, len(pixels), augment.draws), dtype=np.float32)
    return augment_views(pixels, augment, torch.from_numpy(draws))


def augment_views(pixels: Tensor, augment: Augment, uniforms: Tensor) -> Batch:
    """The two views of uint8 (B, C, H, W) that uniforms (2, B, P) stand for, in one call."""
    both = augment(torch.cat([pixels, pixels]), uniforms.flatten(0, 1))
    return both[: len(pixels)], both[len(pixels) :]
