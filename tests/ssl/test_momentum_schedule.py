"""The momentum of key encoders, raised to 1 over the steps of a run."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from fedmia.seeding import rng
from fedmia.ssl._twoview import raise_momentum
from fedmia.ssl.augment import Augment
from fedmia.ssl.train import Job, Train, make_optimizer
from tests.ssl.methods import case

METHODS = ("mocov3", "byol", "dino")


def test_raised__known_values() -> None:
    assert [raise_momentum(0.9, d) for d in (0, 0.5, 1)] == pytest.approx([0.9, 0.95, 1.0])


@pytest.mark.parametrize("name", METHODS)
def test_after_step__follows_by_the_momentum_of_its_step(name: str, textures: Any) -> None:
    """Two jobs of one run, as two rounds are: steps 0 to 2, and 3 to 5, of 6. Naive twin: the
    average of each weight, number by number, with BYOL's formula."""
    method = case(name, momentum=0.5, momentum_schedule="cosine").build()
    train, images = Train(1, 4, lr=0.05), textures(12).numpy()
    key, seen = copy.deepcopy(method.key_encoder), list[float]()
    update = type(method).after_step

    def after_step() -> None:
        step = len(seen)
        m = 1 - (1 - 0.5) * (math.cos(math.pi * step / 6) + 1) / 2
        seen.append(method.momentum)
        update(method)
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), method.encoder.parameters(), strict=True):
                slow.copy_(m * slow + (1 - m) * fast)

    method.after_step = after_step  # type: ignore[method-assign]
    for round in (0, 1):
        Job(
            method, make_optimizer(method, train), images, Augment(), train, rng(round, "t"),
            step=3 * round, total_steps=6, device=torch.device("cpu"),
        ).run()  # fmt: skip
    assert seen == sorted(seen) and seen[0] == 0.5 and 0.9 < seen[-1] < 1
    for got, want in zip(method.key_encoder.parameters(), key.parameters(), strict=True):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", [*METHODS, "moco"])
def test_momentum__stays_where_nobody_raises_it(name: str) -> None:
    method = case(name, momentum=0.5).build()
    method.progress = 0.7
    assert method.momentum == 0.5
