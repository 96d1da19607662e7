"""A federation of one client is SimCLR, MoCo v3, VICReg or LeJEPA trained alone, after every
round."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia import open_run
from fedmia.nets.smallnet import SmallNet
from fedmia.recording import Recording
from fedmia.seeding import rng, torch_rng
from fedmia.ssl._twoview import TwoView, TwoViewSSL
from fedmia.ssl.base import State, TrainingData
from fedmia.ssl.lejepa import directions
from tests.equivalence.conftest import tiny
from tests.small_runs import ran
from tests.watched import same

EPOCHS, BATCH, LR, MU, DECAY, ROUNDS, SEED = 1, 8, 0.02, 0.9, 5e-4, 3, 5
# So that the keys move in few steps; batch norm makes much of rounding.
STEADY = {"mocov3": " --ssl.momentum 0.5", "lejepa": " --ssl.head_norm layer"}


def plain_loss(
    spec: TwoViewSSL, net: TwoView, key: torch.nn.Module, a: Tensor, b: Tensor, done: float
) -> Tensor:
    """The paper's loss of a batch, written with cross entropies and torch's own covariance."""
    if type(spec).__name__ == "LeJEPA":
        z = net.encoder(torch.cat([a, b])).unflatten(0, (2, -1))
        lam, t = spec.sigreg, torch.linspace(-5, 5, 17)
        gauss = torch.exp(-t.square() / 2)
        A = directions(spec.slices, z.shape[2], done, z.device)
        phi = torch.exp(1j * (z @ A.T)[..., None] * t).mean(dim=1)
        statistic = torch.trapezoid((phi - gauss).abs().square() * gauss, t)
        apart = (z - z.mean(dim=0)).square().mean()
        return (1 - lam) * apart + lam * len(a) * statistic.mean()
    z1, z2 = net.encoder(a), net.encoder(b)
    index = torch.arange(len(a))
    if type(spec).__name__ == "SimCLR":
        z = F.normalize(torch.cat([z1, z2]), dim=1)
        logits = (z @ z.T / spec.temperature).fill_diagonal_(-torch.inf)
        return F.cross_entropy(logits, torch.cat([index + len(a), index]))
    if type(spec).__name__ == "MoCoV3":
        T, loss = spec.temperature, torch.zeros(())
        for z, other in ((z1, b), (z2, a)):
            with torch.no_grad():
                k = F.normalize(key(other), dim=1)
            q = F.normalize(net.predictor(z), dim=1)
            loss = loss + 2 * T * F.cross_entropy(q @ k.T / T, index)
        return loss
    loss = spec.invariance * F.mse_loss(z1, z2)
    for z in (z1, z2):
        cov = torch.cov(z.T)
        spread = F.relu(1 - (cov.diagonal() + 1e-4).sqrt()).mean()
        rest = (cov - cov.diagonal().diag()).square().sum() / len(cov)
        loss = loss + spec.variance * spread + spec.covariance * rest
    return loss


def paper_rate(lr: float, step: int, steps: int, warm: int) -> float:
    """A linear warm-up of so many steps, then a cosine to 0."""
    if step < warm:
        return lr * step / warm
    return lr * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2


def plain(images: np.ndarray, spec: TwoViewSSL, recipe_of: str = "sgd") -> list[State]:
    """Training on `images`, nothing federated: what is shared, at the start and every round.

    `adamw`: with a warm-up of an epoch, and the momentum raised to 1 over all steps.
    """
    modern = recipe_of == "adamw"
    training_data = TrainingData((0.305,), (0.376,), len(images))
    net = spec.build(SmallNet().build(1, 8), training_data, torch_rng(SEED, "client-method", -1))
    key = copy.deepcopy(net.encoder)
    sgd: torch.optim.Optimizer
    sgd = torch.optim.SGD(net.trainable(), lr=LR, momentum=MU, weight_decay=DECAY)
    if modern:
        groups = [
            {"params": [w for w in net.trainable() if w.dim() > 1], "weight_decay": DECAY},
            {"params": [w for w in net.trainable() if w.dim() <= 1], "weight_decay": 0.0},
        ]
        sgd = torch.optim.AdamW(groups, lr=LR, betas=(MU, 0.999))
    step, steps = 0, ROUNDS * EPOCHS * math.ceil(len(images) / BATCH)
    states = [net.shared_state()]
    for round in range(1, ROUNDS + 1):
        draw = rng(SEED, "train", round, 0)
        for _ in range(EPOCHS):
            pixels = torch.from_numpy(images[draw.permutation(len(images))]).float() / 255
            u = torch.from_numpy(draw.random((2, len(pixels), spec.augment.draws), np.float32))
            v1, v2 = (spec.augment(pixels, u[i]).split(BATCH) for i in (0, 1))
            for a, b in zip(v1, v2, strict=True):
                warm = math.ceil(len(images) / BATCH) if modern else 0
                for group in sgd.param_groups:
                    group["lr"] = paper_rate(LR, step, steps, warm)
                m = getattr(spec, "momentum", 1.0)
                if modern:
                    m = 1 - (1 - m) * (math.cos(math.pi * step / steps) + 1) / 2
                sgd.zero_grad()
                plain_loss(spec, net, key, a, b, step / steps).backward()
                sgd.step()
                step += 1
                with torch.no_grad():
                    for slow, fast in zip(key.parameters(), net.encoder.parameters(), strict=True):
                        slow.lerp_(fast, 1 - m)
        states.append(net.shared_state())
    return states


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("simclr", ""),
        *(pytest.param(name, "", marks=pytest.mark.slow(seconds=1))
          for name in ("mocov3", "vicreg", "lejepa")),
        ("mocov3", " --train.optimizer adamw --train.warmup_epochs 1 "
         "--ssl.momentum_schedule cosine"),
    ],
)  # fmt: skip
def test_one_client__is_the_plain_loop(tmp_path: Path, name: str, more: str) -> None:
    """27 images: the last batch of an epoch is short."""
    line = tiny(
        f"--clients 1 --attacks none --rounds {ROUNDS} --seed {SEED} "
        f"--train.local_epochs {EPOCHS} --train.lr {LR} --train.batch_size {BATCH} "
        f"--split.members 27 --federation.snapshots {ROUNDS} --ssl {name} --ssl.dim 16 "
        "--model.width 16" + STEADY.get(name, "") + more
    )
    ran(line, tmp_path / "RUN")
    found, run = Recording(tmp_path / "RUN" / "recording").models(), open_run(tmp_path / "RUN")
    images, spec = run.images.client_images(0).numpy(), run.settings.ssl.plugin("ssl")
    expected = plain(images, spec, "adamw" if more else "sgd")
    assert sorted(found) == list(range(ROUNDS + 1)) and same(found[0], expected[0])
    for round, state in enumerate(expected):
        assert found[round].keys() == state.keys()
        for tensor in state:
            # AdamW's first steps are as long (LR) for a gradient that is nothing but rounding.
            near = LR / 40 if more else 1e-5
            torch.testing.assert_close(found[round][tensor], state[tensor], atol=near, rtol=0)
    moved = [float((expected[-1][n] - expected[0][n]).abs().max()) for n in expected[0]]
    assert max(moved) > (2e-2 if more else 1e-3)  # far beyond the tolerance
