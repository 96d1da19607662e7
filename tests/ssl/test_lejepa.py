"""LeJEPA against the paper's listing in loops, known values of its statistic, its directions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedmia.ssl.lejepa import LeJEPA, directions, epps_pulley
from tests.ssl.methods import build, pixels

CPU = torch.device("cpu")
# Of one standard Gaussian sample, N E|phi - g|^2 = 1 - g^2 with g = exp(-t^2/2); of N samples at 0
# the distance is (1 - g)^2. Both times g, integrated over all t.
GAUSSIAN = math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3))
COLLAPSED = math.sqrt(2 * math.pi) * (1 - math.sqrt(2) + 1 / math.sqrt(3))


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def naive_statistic(x: list[float]) -> float:
    """The listing of the paper: 17 points in [-5, 5], trapezoids, times N."""
    heights = []
    for i in range(17):
        t = -5 + 10 * i / 16
        gauss = math.exp(-t * t / 2)
        real = sum(math.cos(t * v) for v in x) / len(x)
        imaginary = sum(math.sin(t * v) for v in x) / len(x)
        heights.append(((real - gauss) ** 2 + imaginary**2) * gauss)
    area = sum((a + b) / 2 for a, b in zip(heights, heights[1:], strict=False)) * 10 / 16
    return len(x) * area


@pytest.mark.parametrize("N", [1, 2, 7])
def test_statistic__equals_the_papers_listing(N: int) -> None:
    x = 0.5 + 1.7 * gaussian(N, 3)  # neither centred nor of deviation 1, nor even
    want = [naive_statistic(column) for column in x.T.tolist()]
    assert epps_pulley(x).tolist() == pytest.approx(want, rel=1e-12)


def test_statistic__of_gaussian_samples_is_near_its_expectation_whatever_their_number() -> None:
    for N in (1, 10, 1000):
        got = epps_pulley(gaussian(N, 2000, seed=N))
        error = float(got.std()) / math.sqrt(2000)
        assert float(got.mean()) == pytest.approx(GAUSSIAN, abs=4 * error + 1e-3)


@pytest.mark.parametrize(
    ("place", "scale"), [(0.0, 0.0), (0.0, 0.3), (0.0, 3.0), (1.0, 1.0)], ids=str
)
def test_statistic__grows_with_the_number_of_samples_of_another_distribution(
    place: float, scale: float
) -> None:
    few, many = (float(epps_pulley(place + scale * gaussian(N, 1))) for N in (500, 2000))
    assert many > 100 * GAUSSIAN and 3.5 < many / few < 4.5
    if not scale:
        assert many == pytest.approx(2000 * COLLAPSED, rel=1e-3)


def test_directions__are_unit_isotropic_and_new_at_each_step() -> None:
    A = directions(4000, 6, 0.25, CPU).double()
    torch.testing.assert_close(A.norm(dim=1), torch.ones(4000, dtype=torch.float64))
    torch.testing.assert_close(A.mean(dim=0), torch.zeros(6).double(), atol=0.03, rtol=0)
    torch.testing.assert_close(A.T @ A / 4000, torch.eye(6).double() / 6, atol=0.02, rtol=0)
    assert len({tuple(row) for row in A.tolist()}) == 4000
    few = directions(5, 6, 0.25, CPU)
    assert torch.equal(few, directions(5, 6, 0.25, CPU))
    # Of 10^9 steps, two beside each other differ by less than a float32 tells apart.
    for step in (0.0, 0.25 + 1e-9, 1.0):
        assert float((directions(5, 6, step, CPU) - few).abs().max()) > 0.1


@pytest.mark.parametrize("progress", [0.0, 0.5])
def test_losses__mean_is_the_papers_loss(progress: float) -> None:
    method, a, b = build(LeJEPA(dim=8, sigreg=0.3, slices=5)), pixels(5, 0), pixels(5, 1)
    method.progress = progress
    z1, z2 = method.encoder(torch.cat([a, b])).double().split(5)
    apart = []
    for one, two in zip(z1.tolist(), z2.tolist(), strict=True):
        centre = [(u + v) / 2 for u, v in zip(one, two, strict=True)]
        squares = [(u - c) ** 2 for view in (one, two) for u, c in zip(view, centre, strict=True)]
        apart.append(sum(squares) / len(squares))
    A = directions(5, 8, progress, CPU).double()
    sketches = [naive_statistic((z @ row).tolist()) for z in (z1, z2) for row in A]
    sigreg = sum(sketches) / len(sketches)
    losses = method.losses(a, b)
    assert losses.tolist() == pytest.approx([0.7 * v + 0.3 * sigreg for v in apart], rel=1e-4)


def test_losses__an_observer_and_one_image_alone_have_the_prediction_alone() -> None:
    method = build(LeJEPA(dim=8, sigreg=0.3, head_norm="none"))
    a, b = pixels(3, 0), pixels(3, 1)
    z1, z2 = method.encoder(a), method.encoder(b)
    want = 0.7 * (z1 - z2).square().mean(dim=1) / 4
    torch.testing.assert_close(method.output_losses(z1, z2), want)
    torch.testing.assert_close(method.losses(a[:1], b[:1]), want[:1])


def test_sigreg__draws_collapsed_outputs_apart_to_a_gaussian() -> None:
    z = (0.01 * gaussian(64, 4)).requires_grad_()
    first = None
    for step in range(100):
        A = directions(16, 4, step / 100, CPU).double()
        loss = epps_pulley(z @ A.T).mean()
        first = float(loss.detach()) if first is None else first
        (gradient,) = torch.autograd.grad(loss, z)
        z = (z - gradient).detach().requires_grad_()
    assert first is not None and first > 10 and float(loss.detach()) < 1
    torch.testing.assert_close(torch.cov(z.detach().T), torch.eye(4).double(), atol=0.3, rtol=0)
