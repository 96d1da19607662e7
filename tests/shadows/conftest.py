"""Tiny shadows: narrow nets on 8x8 images, two shadows of two epochs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedmia.shadows.plan import ShadowPlan, TargetTraining
from fedmia.shadows.train import TrainedShadow, train_shadows
from fedmia.ssl.train import Train

MODEL = ("smallnet", {"width": 4})
MOCO = ("moco", {"dim": 8, "queue": 8, "temperature": 0.2})


def make_plan(**more: Any) -> ShadowPlan:
    values: dict[str, Any] = {"count": 2, "epochs": 2, "model": "smallnet", "ssl": "mocov2"}
    return ShadowPlan(**(values | more))


def make_target(**more: Any) -> TargetTraining:
    values: dict[str, Any] = {
        "channels": 3, "size": 8, "mean": (0.5,) * 3, "std": (0.25,) * 3,
        "model": MODEL, "ssl": MOCO, "train": Train(batch_size=4, lr=0.05, momentum=0.8),
    }  # fmt: skip
    return TargetTraining(**(values | more))


def train(
    plan: ShadowPlan, pool: Tensor, candidates: Tensor | None = None, **more: Any
) -> list[TrainedShadow]:
    target = more.pop("target", make_target())
    return train_shadows(plan, target, pool, candidates, device=torch.device("cpu"), **more)


def weights(trained: TrainedShadow) -> dict[str, Tensor]:
    return trained.method.shared_state() | trained.method.local_state()


def same(a: list[TrainedShadow], b: list[TrainedShadow]) -> bool:
    """Whether the shadows are equal bit by bit, images included."""
    pairs = list(zip(a, b, strict=True))
    return all(
        weights(x).keys() == weights(y).keys()
        and all(torch.equal(t, weights(y)[n]) for n, t in weights(x).items())
        and torch.equal(x.members, y.members)
        and torch.equal(x.nonmembers, y.nonmembers)
        and x.name == y.name
        for x, y in pairs
    )


@pytest.fixture(scope="session")
def pool(textures: Any) -> Tensor:
    """Twenty-four shadow images."""
    return textures(24, seed=5)


@pytest.fixture(scope="session")
def candidates(textures: Any) -> Tensor:
    """Nine images under attack, none of them in `pool`."""
    return textures(9, seed=6)


@pytest.fixture(scope="session")
def plain(pool: Tensor) -> list[TrainedShadow]:
    """The two shadows of `make_plan()`, trained in one go, without a cache."""
    return train(make_plan(), pool)
