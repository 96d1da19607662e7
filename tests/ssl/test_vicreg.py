"""VICReg against Algorithm 1 in loops, closed forms, and batches of one image."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedmia.ssl.vicreg import VICReg, covariance, invariance, variance
from tests.ssl.methods import build, pixels


def rows(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.8 * torch.randn(count, 4, generator=generator, dtype=torch.float64)


def products(z: list[list[float]], j: int, k: int) -> float:
    """Covariance of columns j and k, over n - 1."""
    n = len(z)
    means = [sum(row[c] for row in z) / n for c in (j, k)]
    return sum((row[j] - means[0]) * (row[k] - means[1]) for row in z) / (n - 1)


def naive_variance(z: list[list[float]]) -> float:
    P = len(z[0])
    return sum(max(0.0, 1 - math.sqrt(products(z, j, j) + 1e-4)) for j in range(P)) / P


def naive_covariance(z: list[list[float]]) -> float:
    P = len(z[0])
    return sum(products(z, j, k) ** 2 for j in range(P) for k in range(P) if j != k) / P


def naive_invariance(z1: list[float], z2: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(z1, z2, strict=True)) / len(z1)


@pytest.mark.parametrize("B", [2, 3, 9])
def test_terms__equal_loops(B: int) -> None:
    z1, z2 = rows(B, 0), rows(B, 1)
    assert float(variance(z1)) == pytest.approx(naive_variance(z1.tolist()), abs=1e-12)
    assert float(covariance(z1)) == pytest.approx(naive_covariance(z1.tolist()), abs=1e-12)
    pairs = zip(z1.tolist(), z2.tolist(), strict=True)
    assert invariance(z1, z2).tolist() == pytest.approx([naive_invariance(*p) for p in pairs])


def test_losses__mean_is_algorithm_1() -> None:
    spec = VICReg(dim=8, invariance=25.0, variance=10.0, covariance=3.0)
    method, a, b = build(spec), pixels(5, 0), pixels(5, 1)
    z1, z2 = (method.encoder(x).double().tolist() for x in (a, b))
    images = [25 * naive_invariance(*pair) for pair in zip(z1, z2, strict=True)]
    batch = 10 * (naive_variance(z1) + naive_variance(z2))
    batch += 3 * (naive_covariance(z1) + naive_covariance(z2))
    losses = method.losses(a, b)
    assert losses.tolist() == pytest.approx([i + batch for i in images], abs=1e-4)
    assert losses.mean().item() == pytest.approx(sum(images) / 5 + batch, abs=1e-4)


def test_losses__an_observer_and_one_image_alone_have_the_invariance_alone() -> None:
    method, a, b = build(VICReg(dim=8, invariance=25.0)), pixels(3, 0), pixels(3, 1)
    z1, z2 = method.encoder(a), method.encoder(b)
    want = 25 * (z1 - z2).square().mean(dim=1)
    torch.testing.assert_close(method.output_losses(z1, z2), want)
    torch.testing.assert_close(method.losses(a[:1], b[:1]), want[:1])
