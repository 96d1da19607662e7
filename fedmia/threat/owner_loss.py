"""The loss that a network's owner trained with, read so that its random choices are the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from fedmia.settings.errors import InputError, opt
from fedmia.ssl.base import iterate_parts

OwnerLoss = Callable[[nn.Module, Tensor], Tensor]  # of (network, pixels in [0, 1]): (B,)


def owner_loss(loss: OwnerLoss, network: nn.Module, pixels: Tensor) -> Tensor:
    """The loss of each image, differentiable.

    Args:
        loss: of (network, pixels).
        network: that was trained with it.
        pixels: float (B, C, H, W) in [0, 1].

    Returns:
        (B,).

    Raises:
        InputError: the loss returns something else.
    """
    values = loss(network, pixels)
    shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    if shape != (len(pixels),):
        raise InputError(
            f"{opt('federation.loss')} must return a tensor ({len(pixels)},), a loss of each "
            f"image, got {shape}"
        )
    return values


@torch.no_grad()
def read_owner_loss(
    loss: OwnerLoss, network: nn.Module, images: Tensor, device: torch.device, seed: int
) -> Tensor:
    """(N,) the loss of each image, on the CPU; equal calls give equal numbers.

    Args:
        loss: of (network, pixels).
        network: on `device`.
        images: uint8 (N, C, H, W), or floats in [0, 1].
        device: of the network.
        seed: of the random choices.

    Returns:
        Float32 (N,).

    Raises:
        InputError: the loss returns something else.
    """
    with fixed_choices(seed, device):
        parts = iterate_parts(images, device)
        return torch.cat([owner_loss(loss, network, part).float().cpu() for part in parts])


@contextmanager
def fixed_choices(seed: int, device: torch.device) -> Iterator[None]:
    """Let the global generators start from a seed, and leave them as they were.

    Those of a GPU alone where the network is on it: seeding others would change whoever trains
    there.

    Args:
        seed: of what is drawn inside.
        device: of the network.

    Yields:
        Nothing.
    """
    gpu = [device] if device.type == "cuda" else []
    before, state = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=gpu):
            torch.default_generator.manual_seed(seed)
            for one in gpu:
                with torch.cuda.device(one):
                    torch.cuda.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
    finally:
        np.random.set_state(before)
        random.setstate(state)
