"""A federation of one client is MoCo trained alone: the same bits after every round."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia.nets.smallnet import SmallNet
from fedmia.seeding import rng, torch_rng
from fedmia.settings import registry
from fedmia.ssl.base import Encoder, State, TrainingData
from fedmia.ssl.moco import MoCo

from .conftest import federated, planned, same, weights

EPOCHS, BATCH, LR, MU, DECAY, ROUNDS, SEED = 2, 8, 0.06, 0.9, 5e-4, 3, 5


def first_net(spec: MoCo) -> Encoder:
    """The server's first weights."""
    training_data = TrainingData((0.305,), (0.376,))
    stream = torch_rng(SEED, "client-method", -1)
    return spec.build(SmallNet(width=4).build(1, 8), training_data, stream).encoder


def first_queue(spec: MoCo, images: int) -> Tensor:
    """Random directions, half as many as there are images."""
    stream = torch_rng(SEED, "client-bank", 0)
    return F.normalize(torch.randn(images // 2, spec.dim, generator=stream), dim=1)


def plain_moco(images: np.ndarray, spec: MoCo, keep: bool) -> list[State]:
    """MoCo on `images`, nothing federated: the encoder's weights at the start and every round."""
    net = first_net(spec)  # fedmia gives the first weights; all else is written out here
    key, queue, at = copy.deepcopy(net), first_queue(spec, len(images)), 0
    sgd = torch.optim.SGD(net.parameters(), lr=LR, momentum=MU, weight_decay=DECAY)
    step, steps = 0, ROUNDS * EPOCHS * math.ceil(len(images) / BATCH)
    states = [copy.deepcopy(net.state_dict())]
    for round in range(1, ROUNDS + 1):
        draw = rng(SEED, "train", round, 0)
        if not keep and round > 1:  # a client that keeps nothing starts each round afresh
            key, queue, at = copy.deepcopy(net), first_queue(spec, len(images)), 0
            sgd = torch.optim.SGD(net.parameters(), lr=LR, momentum=MU, weight_decay=DECAY)
        for _ in range(EPOCHS):
            pixels = torch.from_numpy(images[draw.permutation(len(images))]).float() / 255
            u = torch.from_numpy(draw.random((2, len(pixels), spec.augment.draws), np.float32))
            v1, v2 = (spec.augment(pixels, u[i]).split(BATCH) for i in (0, 1))
            for a, b in zip(v1, v2, strict=True):
                pairs = [(a, b), (b, a)] if spec.symmetric else [(a, b)]
                with torch.no_grad():
                    keys = [F.normalize(key(y), dim=1) for _, y in pairs]
                loss = torch.zeros(len(a))
                for (x, _), k in zip(pairs, keys, strict=True):
                    q = F.normalize(net(x), dim=1)
                    scores = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T.clone()], 1)
                    scores = scores / spec.temperature
                    loss = loss + (scores.logsumexp(1) - scores[:, 0]) / len(pairs)
                sgd.param_groups[0]["lr"] = LR * (1 + math.cos(math.pi * step / steps)) / 2
                sgd.zero_grad()
                loss.mean().backward()
                sgd.step()
                step += 1
                with torch.no_grad():
                    for slow, fast in zip(key.parameters(), net.parameters(), strict=True):
                        slow.lerp_(fast, 1 - spec.momentum)
                    for k in keys:
                        queue[(torch.arange(len(k)) + at) % len(queue)] = k
                        at = (at + len(k)) % len(queue)
        states.append(copy.deepcopy(net.state_dict()))
    return states


@pytest.mark.parametrize("keep", [True, False], ids=["keep", "reset"])
@pytest.mark.parametrize("symmetric", [False, True], ids=["one-way", "symmetric"])
def test_one_client__is_a_plain_moco_loop(tmp_path: Path, keep: bool, symmetric: bool) -> None:
    """27 images: the last batch of an epoch is short, and no batch fills the queue of 13."""
    kept = "keep" if keep else "reset"
    setup = planned(
        f"--clients 1 --rounds {ROUNDS} --seed {SEED} "
        f"--train.local_epochs {EPOCHS} --train.lr {LR} --train.batch_size {BATCH} "
        f"--split.members 27 --federation.snapshots {ROUNDS} "
        f"--ssl.symmetric {str(symmetric).lower()} --ssl.key {kept} --ssl.queue_policy {kept} "
        f"--train.optimizer_state {kept} --ssl.dim 16"
    )
    found = weights(federated(setup, tmp_path / "run"))
    assert sorted(found) == list(range(ROUNDS + 1))
    spec = registry.build("ssl", "moco", dict(setup.experiment.ssl.options))
    expected = plain_moco(setup.cast.data.images[setup.cast.parts[0]], spec, keep)
    for round, state in enumerate(expected):
        assert same(found[round], state), f"round {round} differs"
    assert not same(found[ROUNDS - 1], found[ROUNDS])  # it trains at all
