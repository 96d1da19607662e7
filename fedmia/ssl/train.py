"""Local training: epochs of a self-supervised method over a client's own images."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedmia.data.images import ByteArray
from fedmia.options import Options, option
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod


@dataclass(frozen=True)
class Train(Options):
    """How each client trains in a round."""

    local_epochs: int = option(10, "epochs over the client's images in a round", ge=1)
    batch_size: int = option(8, "images a step", ge=1)
    lr: float = option(0.1, "learning rate of SGD", gt=0)
    momentum: float = option(0.9, "momentum of SGD", ge=0, lt=1)
    weight_decay: float = option(5e-4, "L2 weight decay", ge=0)
    schedule: str = option(
        "cosine", "learning rate over the whole run's steps", choices=("cosine", "constant")
    )
    optimizer_state: str = option(
        "keep", "momentum buffers across rounds", choices=("keep", "reset")
    )
    precision: str = option(
        "float32", "arithmetic of training (never of scores)", choices=("float32", "bfloat16")
    )
    channels_last: bool = option(False, "memory layout of convolutions in training")

    def rate(self, step: int, total: int) -> float:
        """Learning rate at global step `step` of `total` (a function of the step alone)."""
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1 + math.cos(math.pi * min(step / max(total, 1), 1.0)))


def make_optimizer(method: SSLMethod, train: Train) -> torch.optim.SGD:
    """SGD over the parameters that the method trains."""
    return torch.optim.SGD(
        method.trainable(), lr=train.lr, momentum=train.momentum,
        weight_decay=train.weight_decay, foreach=True,
    )


@dataclass
class Job:
    """One client's training in one round; a defence may run it otherwise than `run` does.

    Attributes:
        images: uint8 (N, C, H, W), the client's own.
        rng: stream of this (seed, round, partition): shuffling first, then views, epoch by epoch.
        step: global step at which this round starts; `run` moves it on.
        total_steps: steps of the whole run, for the schedule.
        proximal_mu: weight of FedProx's mu/2 ||w - w_received||^2.
        stop: asked before each step; True ends the round early (the run was interrupted).
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
    proximal_mu: float = 0.0
    stop: Callable[[], bool] = lambda: False

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of views, (B, C, H, W) each, of every batch of the round.

        An epoch's images are augmented in one call. The last batch of an epoch may be short.
        """
        pixels = torch.from_numpy(np.ascontiguousarray(self.images)).to(self.device)
        for _ in range(self.train.local_epochs):
            order = torch.from_numpy(self.rng.permutation(len(self.images))).to(self.device)
            view1, view2 = two_views(pixels[order], self.augment, self.rng)
            size = self.train.batch_size
            for start in range(0, len(order), size):
                yield view1[start : start + size], view2[start : start + size]

    def set_rate(self) -> None:
        """Learning rate of the coming step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.train.rate(self.step, self.total_steps)

    def forward(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Per-image losses (B,) in the precision asked for."""
        if self.train.channels_last:
            view1 = view1.contiguous(memory_format=torch.channels_last)
            view2 = view2.contiguous(memory_format=torch.channels_last)
        half = self.train.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            return self.method.losses(view1, view2).float()

    def run(self) -> dict[str, float]:
        """Train; returns the mean loss over the round's images and the seconds spent."""
        started = time.perf_counter()
        total, count = 0.0, 0
        layout = torch.channels_last if self.train.channels_last else torch.preserve_format
        self.method.train().to(memory_format=layout)
        anchor = [w.detach().clone() for w in self.method.trainable()] if self.proximal_mu else []
        for view1, view2 in self.batches():
            if self.stop():
                break
            self.set_rate()
            losses = self.forward(view1, view2)
            self.optimizer.zero_grad(set_to_none=True)
            losses.mean().backward()
            for weight, start in zip(self.method.trainable(), anchor, strict=False):
                if weight.grad is not None:
                    weight.grad.add_(weight.detach() - start, alpha=self.proximal_mu)
            self.optimizer.step()
            self.method.after_step()
            self.step += 1
            total += float(losses.detach().sum())
            count += len(losses)
        return {"loss": total / max(count, 1), "seconds": time.perf_counter() - started}


def two_views(
    pixels: Tensor, augment: Augment, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Two independent augmentations of uint8 (B, C, H, W), floats in [0, 1] on its device."""
    scaled = pixels.float() / 255
    draws = rng.random((2, len(pixels), augment.draws), dtype=np.float32)
    uniforms = torch.from_numpy(draws).to(pixels.device)
    return augment(scaled, uniforms[0]), augment(scaled, uniforms[1])
