"""What all tests of rounds share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from clients.client_setup import ClientSetup
from fedmia.ssl.base import State
from fedmia.storage.snapshot import Update
from tests.small_setup import small_setup


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Flower narrates every round."""
    log = logging.getLogger("flwr")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


@pytest.fixture
def client_setup(tmp_path: Path, images: torch.Tensor) -> ClientSetup:
    """Three clients of six images each."""
    np.save(tmp_path / "images.npy", images.numpy())
    return small_setup(tmp_path / "images.npy", np.split(np.arange(18), 3))


def some_state(seed: int, scale: float = 1.0, far: float = 0.0) -> State:
    """Weights of two tensors, all different by the seed."""
    draw = np.random.default_rng(seed)
    return {
        "head.weight": torch.from_numpy(far + draw.normal(size=(3, 4)) * scale).float(),
        "bias": torch.from_numpy(far + draw.normal(size=5) * scale).float(),
    }


def updates(count: int, round: int = 1) -> list[Update]:
    """Updates of clients of 3, 5, 7, .. images."""
    return [Update(c, round, some_state(c + 10 * round), 3 + 2 * c, {}) for c in range(count)]


def exactly(a: State, b: State) -> bool:
    """Whether two states are equal to the bit."""
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)
