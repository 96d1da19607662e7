"""Logit-DP: the clipped gradient against a naive twin, and its sensitivity against its definition.

Neighbours differ in one image, replaced by a null record, as in test_dpsgd_neighbours.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.defenses import logit_dp
from fedmia.defenses._persample import private_optimizer
from fedmia.defenses.accounting import epsilon_spent
from fedmia.defenses.base import TrainingConditions
from fedmia.defenses.dpsgd import DPSGD
from fedmia.defenses.logit_dp import LogitDP, batch_sensitivity, similarity_gradients
from fedmia.nets.smallnet import SmallNet
from fedmia.seeding import torch_rng
from fedmia.settings.errors import InputError
from fedmia.ssl.base import TrainingData
from fedmia.ssl.byol import BYOL
from fedmia.ssl.dinov2 import DINOv2
from fedmia.ssl.lejepa import LeJEPA
from fedmia.ssl.moco import MoCo
from fedmia.ssl.mocov3 import MoCoV3
from fedmia.ssl.simclr import SimCLR, nt_xent
from fedmia.ssl.swav import SwAV
from fedmia.ssl.train import Batch, Job
from fedmia.ssl.vicreg import VICReg
from fedmia.testing.material import textures as pictures
from tests.defenses.test_dpsgd_neighbours import CLIP, views


def simclr(temperature: float = 0.5, seed: int = 0) -> Any:
    spec = SimCLR(dim=8, hidden=8, bank=6, temperature=temperature)
    training_data = TrainingData((0.5,) * 3, (0.25,) * 3, 12)
    return spec.build(
        SmallNet(width=4).build(3, 8), training_data, torch_rng(seed, "logit")
    ).train()


def clipped(job: Job, batch: Batch, clip: float, most: int = 1000) -> tuple[Tensor, Tensor, Tensor]:
    with private_optimizer(job, 0.0, 1.0, 4.0, torch.Generator()):
        losses, norms, sums = similarity_gradients(job.method, batch, clip, most)
    return losses, norms, torch.cat([s.flatten() for s in sums])


def naive_gradient(method: Any, batch: Batch, clip: float) -> Tensor:
    """Algorithm 1 of the paper on NT-Xent: a loop over logits, each with a backward of its own."""
    weights, T = method.trainable(), method.spec.temperature
    z = F.normalize(method.encoder(torch.cat(batch)), dim=1)
    total, count = torch.zeros(sum(w.numel() for w in weights)), len(z)
    for anchor in range(count):
        others = [b for b in range(count) if b != anchor]
        logits = torch.stack([z[anchor] @ z[b] for b in others]).detach().requires_grad_()
        target = torch.tensor([others.index((anchor + count // 2) % count)])
        (F.cross_entropy(logits[None] / T, target) / 2).backward()
        assert logits.grad is not None
        for factor, b in zip(logits.grad, others, strict=True):
            parts = torch.autograd.grad(z[anchor] @ z[b], weights, retain_graph=True)
            v = torch.cat([p.flatten() for p in parts])
            total += factor * v * min(1.0, clip / max(float(v.norm()), 1e-12))
    return total.detach()


@pytest.mark.parametrize("clip", [CLIP, 1e6])
def test_gradient__is_the_naive_twins(clip: float, make_job: Any) -> None:
    """Without a clip that binds that of the loss."""
    job, batch = make_job(simclr()), views([0, 3, 5, 8])
    losses, norms, total = clipped(job, batch, clip)
    twin = naive_gradient(simclr(), batch, clip)
    assert len(norms) == 8 * 7 // 2 and bool((norms > CLIP).any())
    assert torch.allclose(total, twin, rtol=1e-3, atol=1e-5 * float(twin.norm()))
    method = simclr()
    z = F.normalize(method.encoder(torch.cat(batch)), dim=1)
    assert torch.allclose(losses, nt_xent(z[:4], z[4:], 0.5), atol=1e-5)
    if clip > CLIP:
        parts = torch.autograd.grad(method.losses(*batch).sum(), method.trainable())
        plain = torch.cat([p.flatten() for p in parts])
        assert torch.allclose(total, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_gradient__of_no_image_or_one_or_none_that_is_finite_is_nothing(
    value: float, make_job: Any
) -> None:
    for rows in ([], [3], [1, 2])[: 3 if value else 2]:
        first, second = (view + value for view in views(rows))
        losses, norms, total = clipped(make_job(simclr()), (first, second), CLIP)
        assert float(total.abs().max()) < 1e-6
        assert not value or len(losses) == len(norms) == 0


def test_gradient__does_not_depend_on_how_many_pairs_fit(make_job: Any) -> None:
    whole, parts = (clipped(make_job(simclr()), views([4, 0, 7]), CLIP, most) for most in (99, 3))
    assert all(
        torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(whole, parts, strict=True)
    )


def bound(rest: int, temperature: float) -> float:
    """On a batch of `rest` images and one more, from the terms of the module's step 1 to 4."""
    N, k, T = 2.0 * rest, math.exp(2 / temperature), temperature
    grid = np.linspace(1e-6, 3, 30001)
    h = N / (N - 1)
    near = (np.cosh(grid / T) + (1 - grid) / h * np.sinh(grid / T)).max()
    R = 2 * h * min(k, math.exp(1 / ((N - 1) * T)) * near)
    return CLIP / (2 * T) * (4 * N * k / (1 + N * k) + 2 * R / (1 + R / N))


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("rest", [1, 2, 5, 9])
def test_sensitivity__neighbours_differ_by_less(
    rest: int, temperature: float, make_job: Any
) -> None:
    images = [0, 1, 2, 4, 5, 6, 7, 8, 9][:rest]
    moved = []
    for seed in range(2):
        job = make_job(simclr(temperature, seed))
        one, two = (clipped(job, views(r, seed), CLIP)[2] for r in (images, [*images, 3]))
        moved.append(float((one - two).norm()))
    assert 0.02 * bound(rest, temperature) < max(moved) <= bound(rest, temperature)


@pytest.mark.parametrize("temperature", [0.2, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("rest", [1, 3, 20])
def test_sensitivity__share_taken_holds_for_outputs_chosen_against_it(
    rest: int, temperature: float
) -> None:
    """By ascent on the softmax mass of all other anchors that the new image takes."""
    z = torch.randn(2 * rest + 2, 4, generator=torch_rng(rest, "adversary")).requires_grad_()
    ascent = torch.optim.Adam([z], lr=0.05)
    best = 0.0
    for _ in range(150):
        unit = F.normalize(z, dim=1)
        shares = (unit @ unit.T / temperature).fill_diagonal_(-torch.inf).softmax(dim=1)
        mass = shares[:-2, -2:].sum()
        best = max(best, float(mass.detach()))
        ascent.zero_grad()
        (-mass).backward()
        ascent.step()
    N = np.array([2.0 * rest])
    limit = float(logit_dp.share_bound(N, math.exp(2 / temperature), temperature)[0])
    assert 1.0 < best <= limit * (1 + 1e-6) and limit <= 2 * rest


def test_batch_sensitivity__is_the_largest_over_sizes_by_a_loop() -> None:
    """And stays bounded as batches grow, where clipping an image's gradient would let all others
    move with it."""
    for images, expected, T in ((1, 1.0, 0.5), (30, 4.0, 0.5), (30, 30.0, 1.0), (50, 8.0, 0.1)):
        best = 0.0
        for n in range(2, images + 1):
            own, before = min(1.0, expected / n), min(1.0, expected / (n - 1))
            negatives = (2 * n - 4) * math.exp(2 / T)
            whole = 2 * (n - 1) * 2 * negatives / (1 + negatives) / (2 * T)
            best = max(best, own * bound(n - 1, T) / CLIP + (before - own) * whole)
        sensitivity = batch_sensitivity(images, expected, T)  # its closed form is above the grid
        assert best * (1 - 1e-6) <= sensitivity <= best * 1.15 + 1e-9
    values = [batch_sensitivity(10 * size, size, 0.5) for size in (16, 256, 4096)]
    assert values[2] < 1.05 * values[1] < 1.5 * values[0]
    assert math.isfinite(batch_sensitivity(100, 16, 1e-3))


def noised_steps(rows: list[list[int]], make_job: Any) -> tuple[list[Tensor], Job]:
    """Weighted sums of steps on the batches, from the same weights each, and the job after."""
    job, weighted = make_job(simclr(), weight_decay=0.1), []
    start, defense = job.method.shared_state(), LogitDP(max_grad_norm=CLIP)
    with private_optimizer(job, 0.5, 1.0, 4.0, torch.Generator().manual_seed(3)) as private:
        for step, batch in enumerate(rows):
            private.zero_grad(set_to_none=True)
            defense.step(job, private, views(batch, step), 100)
            sums = [w.summed_grad.flatten() for w in job.method.trainable()]
            weighted.append(torch.cat(sums))
            job.method.load_shared(start)
    return weighted, job


def test_neighbours__weighted_sums_differ_by_the_sensitivity_and_nothing_else_does(
    make_job: Any,
) -> None:
    rows = [[0, 5, 3], [4, 6, 9], [], [2, 3, 7, 8, 1, 10, 11]]
    left = [[r for r in batch if r != 3] for batch in rows]
    (one, job), (two, other) = noised_steps(rows, make_job), noised_steps(left, make_job)
    distances = [float((a - b).norm()) for a, b in zip(one, two, strict=True)]
    reach = LogitDP(max_grad_norm=CLIP).sensitivity(job)
    assert reach == pytest.approx(CLIP * batch_sensitivity(12, 4.0, 0.5))
    assert distances[1] == distances[2] == 0.0
    assert 0 < distances[0] <= reach and 0 < distances[3] <= reach
    memories = job.method.local_state().keys() | other.method.local_state().keys()
    assert memories == {"bank", "pointer"}  # which no gradient reads
    job.method.fill_bank(pictures(6, seed=1).float() / 255)
    for step, weight in ((1, 1.0), (3, 4 / 7)):  # large batches are weighed down
        *_, again = clipped(job, views(rows[step], step), CLIP)
        assert torch.allclose(again * weight, one[step], rtol=1e-4, atol=1e-7)


def test_train__noise_is_the_multiplier_times_the_sensitivity(make_job: Any) -> None:
    ends = []
    for noise in (0.0, 2.0):
        job = make_job(
            simclr(), local_epochs=1, batch_size=12, lr=1.0, momentum=0.0, weight_decay=0.0,
            schedule="constant",
        )  # fmt: skip
        metrics = LogitDP(noise_multiplier=noise, max_grad_norm=0.1, lr=1.0).train(job, {})
        ends.append(torch.cat([w.detach().flatten() for w in job.method.trainable()]))
    spread = 2.0 * 0.1 * batch_sensitivity(12, 12.0, 0.5) / 12
    assert metrics["noise_std"] == pytest.approx(spread)
    assert float((ends[1] - ends[0]).std()) == pytest.approx(spread, rel=0.1)
    assert 0 < metrics["clipped"] <= 1 and math.isfinite(metrics["loss"])


def test_privacy__is_that_of_the_sampled_gaussian_and_says_what_it_rests_on(make_job: Any) -> None:
    defense, memory = LogitDP(noise_multiplier=2.0, max_grad_norm=CLIP), dict[str, Any]()
    job = make_job(simclr())
    defense.train(job, memory)
    stated: Any = defense.privacy(memory)
    assert (stated.standing, stated.unit) == ("guaranteed", "image")
    assert stated.value == pytest.approx(epsilon_spent([(2.0, 4 / 12, 6)], 1e-5, "rdp"))
    assert f"at most {defense.sensitivity(job):.3g}" in stated.assumptions
    assert "null record" in stated.assumptions
    loose: Any = LogitDP(noise_multiplier=2.0, accountant="gdp").privacy(memory)
    assert loose.standing == "heuristic" and "central limit" in loose.assumptions
    assert LogitDP().privacy({**memory, "history": [[0.0, 0.5, 1]]}) is None


def test_train__without_coupling_it_is_dpsgd(make_moco: Any, make_job: Any) -> None:
    ends, statements = [], []
    for defense in (LogitDP(noise_multiplier=1.0), DPSGD(noise_multiplier=1.0)):
        job, memory = make_job(make_moco()), dict[str, Any]()
        defense.train(job, memory)
        ends.append(job.method.shared_state())
        statements.append(defense.privacy(memory))
    assert all(torch.equal(t, ends[1][n]) for n, t in ends[0].items())
    assert statements[0] == statements[1]


def test_check__refuses_what_its_bound_does_not_cover() -> None:
    coupled = MoCoV3(), SwAV(), VICReg(), LeJEPA(head_norm="none"), DINOv2(head_norm="none")
    for spec in (*coupled, BYOL(head_norm="batch"), SimCLR(head_norm="batch")):
        with pytest.raises(InputError, match="use ssl simclr"):
            LogitDP().check(TrainingConditions("group", spec))
    with pytest.raises(InputError, match="batch norm"):
        LogitDP().check(TrainingConditions("batch", SimCLR()))
    for sound in (SimCLR(), SimCLR(head_norm="layer"), MoCo()):
        LogitDP().check(TrainingConditions("group", sound))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("sides", [(0, 1), (1,)])
def test_gradient__an_image_without_finite_outputs_is_a_null_record(
    value: float, sides: tuple[int, ...], make_job: Any
) -> None:
    """In both views or in one: the sum, the losses and what is remembered are those without it."""
    batch = views([0, 3, 5, 8])
    for side in sides:
        batch[side][2] = value
    (job, other), without = (make_job(simclr()), make_job(simclr())), views([0, 3, 8])
    losses, norms, total = clipped(job, batch, CLIP)
    expected = clipped(other, without, CLIP)
    assert bool(total.isfinite().all()) and float(total.norm()) > 0
    # A batch of another size may be summed in another order.
    for got, want in zip((losses, norms, total), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(job.method.bank.rows, other.method.bank.rows)
