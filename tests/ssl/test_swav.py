"""SwAV: Sinkhorn-Knopp against the paper's loop, swapped prediction, and the queue."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.ssl._prototypes import codes, potentials
from fedmia.ssl.swav import SwAV, SwAVMethod
from tests.ssl.methods import build, pixels


def make(**options: Any) -> SwAVMethod:
    small = {"dim": 8, "hidden": 12, "prototypes": 5, "queue": 12, "head_norm": "none"}
    return build(SwAV(**{**small, **options}))


def cosines(rows: int, K: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, K, generator=generator, dtype=torch.float64) * 2 - 1


def by_loop(scores: Tensor, epsilon: float, iterations: int) -> list[list[float]]:
    """Codes (N, K) by the paper's pseudo-code: rows and columns of exp(scores / eps) in turn."""
    N, K = scores.shape
    scores = scores.detach()
    Q = [[math.exp(float(scores[n, k]) / epsilon) for n in range(N)] for k in range(K)]  # KxN
    for _ in range(iterations):
        for k in range(K):
            total = sum(Q[k])
            Q[k] = [v / (total * K) for v in Q[k]]
        for n in range(N):
            total = sum(Q[k][n] for k in range(K))
            for k in range(K):
                Q[k][n] /= total * N
    sums = [sum(Q[k][n] for k in range(K)) for n in range(N)]
    return [[Q[k][n] / sums[n] for k in range(K)] for n in range(N)]


@pytest.mark.parametrize(("rows", "iterations"), [(1, 3), (2, 3), (7, 0), (7, 1), (7, 3)])
def test_codes__equal_the_papers_loop(rows: int, iterations: int) -> None:
    scores = cosines(rows, 4)
    got = codes(scores, potentials(scores, 0.05, iterations), 0.05)
    want = torch.tensor(by_loop(scores, 0.05, iterations), dtype=torch.float64)
    torch.testing.assert_close(got, want, atol=1e-9, rtol=1e-7)


def test_codes__one_feature_alone_or_equal_features_are_uniform() -> None:
    for scores in (cosines(1, 4), cosines(1, 4).expand(6, 4)):
        got = codes(scores, potentials(scores, 0.05, 3), 0.05)
        torch.testing.assert_close(got, torch.full_like(got, 0.25))


def test_potentials__of_no_feature_are_zero_and_none_overflows() -> None:
    assert potentials(cosines(0, 4), 0.05, 3).tolist() == [0.0] * 4
    scores = cosines(6, 4).float()
    assert bool(torch.isfinite(codes(scores, potentials(scores, 1e-4, 3), 1e-4)).all())


@pytest.mark.parametrize("queue", [0, 12])
def test_losses__naive_twin(queue: int) -> None:
    method, a, b = make(queue=queue), pixels(3, 0), pixels(3, 1)
    if queue:
        method.losses(pixels(2, 5), pixels(2, 6))
        method.after_step()  # four outputs wait in the queue
    with torch.no_grad():
        losses = method.losses(a, b).tolist()
        C = F.normalize(method.prototypes.weight.double(), dim=1)
        z1, z2 = (F.normalize(method.encoder(x).double(), dim=1) for x in (a, b))
    queued = method.bank.rows[:4].double() if queue else z1[:0]
    q1, q2 = (by_loop(torch.cat([queued, z]) @ C.T, 0.05, 3)[-3:] for z in (z1, z2))
    for i, got in enumerate(losses):
        want = 0.0
        for q, z in ((q1[i], z2[i]), (q2[i], z1[i])):
            powers = [math.exp(float(z @ c) / 0.1) for c in C]
            want -= sum(v * math.log(p / sum(powers)) for v, p in zip(q, powers, strict=True)) / 2
        assert got == pytest.approx(want, abs=1e-4)


def test_losses__no_gradient_through_the_codes() -> None:
    method, a, b = make(queue=0), pixels(4, 0), pixels(4, 1)
    method.losses(a, b).mean().backward()
    assert all(w.grad is not None and bool(w.grad.any()) for w in method.trainable())
    s1, s2 = (method.prototypes(method.encoder(x)) for x in (a, b))
    q1, q2 = (torch.tensor(by_loop(s, 0.05, 3)) for s in (s1, s2))
    rows = (q1 * torch.log_softmax(s2 / 0.1, dim=1) + q2 * torch.log_softmax(s1 / 0.1, dim=1)) / 2
    want = torch.autograd.grad(-rows.sum(dim=1).mean(), method.prototypes.weight)[0]
    torch.testing.assert_close(method.prototypes.weight.grad, want, atol=1e-5, rtol=1e-4)


def test_queue__holds_the_latest_outputs_of_both_views() -> None:
    method = make(queue=4)
    for seed in range(3):
        a, b = pixels(1, seed), pixels(1, seed + 9)
        z = F.normalize(method.encoder(torch.cat([a, b])), dim=1).detach()
        method.losses(a, b)
        assert not any(torch.allclose(row, z[0], atol=1e-6) for row in method.bank.rows)
        method.after_step()
        at = 2 * seed % 4
        torch.testing.assert_close(method.bank.rows[at : at + 2], z)
    assert method.bank.pointer == 2


def test_output_losses__codes_are_those_that_the_bank_gives_its_own_images() -> None:
    """Whichever images are read together."""
    method, x = make(), pixels(6, 3)
    method.fill_bank(x)
    z = method.encoder(x)
    scores = method.prototypes(z)
    q = torch.tensor(by_loop(scores.double(), 0.05, 3), dtype=torch.float32)
    want = -(q * torch.log_softmax(scores / 0.1, dim=1)).sum(dim=1)
    torch.testing.assert_close(method.output_losses(z, z), want, atol=1e-4, rtol=1e-4)
    alone = torch.cat([method.output_losses(row[None], row[None]) for row in z])
    torch.testing.assert_close(alone, want, atol=1e-4, rtol=1e-4)


def test_output_losses__without_a_bank_read_plain_softmax_codes() -> None:
    method, z = make(queue=0), pixels(3, 0).flatten(1)[:, :8] - 0.5
    scores = method.prototypes(z)
    want = -(torch.softmax(scores / 0.05, 1) * torch.log_softmax(scores / 0.1, 1)).sum(dim=1)
    torch.testing.assert_close(method.output_losses(z, z), want)
