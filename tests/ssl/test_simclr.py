"""SimCLR's NT-Xent against a double loop, closed forms, and batches of one image."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.ssl.simclr import SimCLR, nt_xent
from tests.ssl.methods import build, pixels, unit


def paper_loss(z1: Tensor, z2: Tensor, T: float) -> list[float]:
    """Algorithm 1: views 2k - 1 and 2k belong to image k; l(i, j) over all k != i."""
    views = [row.tolist() for pair in zip(z1, z2, strict=True) for row in pair]

    def s(i: int, j: int) -> float:
        return sum(a * b for a, b in zip(views[i], views[j], strict=True))

    def loss(i: int, j: int) -> float:
        others = [math.exp(s(i, k) / T) for k in range(len(views)) if k != i]
        return -math.log(math.exp(s(i, j) / T) / sum(others))

    return [(loss(i, i + 1) + loss(i + 1, i)) / 2 for i in range(0, len(views), 2)]


@pytest.mark.parametrize("T", [0.1, 1.0])
@pytest.mark.parametrize("B", [1, 2, 5])
def test_nt_xent__equals_the_papers_loop(B: int, T: float) -> None:
    z1, z2 = unit(B, 0), unit(B, 1)
    assert nt_xent(z1, z2, T).tolist() == pytest.approx(paper_loss(z1, z2, T), abs=1e-9)


def test_losses__are_nt_xent_of_the_outputs() -> None:
    method, a, b = build(SimCLR(dim=8, bank=6)), pixels(4, 0), pixels(4, 1)
    z1, z2 = (F.normalize(method.encoder(x), dim=1) for x in (a, b))
    want = paper_loss(z1, z2, method.spec.temperature)
    assert method.losses(a, b).tolist() == pytest.approx(want, abs=1e-5)


def test_chance_loss__is_the_mean_loss_where_all_outputs_are_one() -> None:
    one = F.normalize(torch.ones(8, 16), dim=1)
    batches = [nt_xent(one[:size], one[:size], 0.5) for size in (8, 8, 4)]
    assert float(torch.cat(batches).mean()) == pytest.approx(SimCLR().chance_loss(20, 8), abs=1e-5)
    assert SimCLR(blur=0.5).augment.blur_p == 0.5
