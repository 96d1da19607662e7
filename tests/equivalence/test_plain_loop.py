"""A federation of one client is MoCo trained alone: the same bits after every round."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmia import open_run
from fedmia.nets.smallnet import SmallNet
from fedmia.recording import Recording
from fedmia.seeding import rng, torch_rng
from fedmia.ssl.base import Encoder, State, TrainingData
from fedmia.ssl.moco import MoCo
from tests.small_runs import ran
from tests.watched import same

from .conftest import tiny

EPOCHS, BATCH, LR, MU, DECAY, ROUNDS, SEED = 2, 8, 0.06, 0.9, 5e-4, 3, 5


def first_net(spec: MoCo) -> Encoder:
    """The server's first weights."""
    training_data = TrainingData((0.305,), (0.376,))
    stream = torch_rng(SEED, "client-method", -1)
    return spec.build(SmallNet(width=4).build(1, 8), training_data, stream).encoder


def first_queue(spec: MoCo, images: int, client: int) -> Tensor:
    """Random directions, half as many as there are images."""
    stream = torch_rng(SEED, "client-bank", client)
    return F.normalize(torch.randn(images // 2, spec.dim, generator=stream), dim=1)


def plain_moco(
    images: np.ndarray, spec: MoCo, keep: bool, rounds: int = ROUNDS, client: int = 0
) -> list[State]:
    """MoCo on `images`, nothing federated: the encoder's weights at the start and every round; of
    client -1, the server, before the first round."""
    net = first_net(spec)  # fedmia gives the first weights; all else is written out here
    key, queue, at = copy.deepcopy(net), first_queue(spec, len(images), client), 0
    sgd = torch.optim.SGD(net.parameters(), lr=LR, momentum=MU, weight_decay=DECAY)
    step, steps = 0, rounds * EPOCHS * math.ceil(len(images) / BATCH)
    states = [copy.deepcopy(net.state_dict())]
    for round in range(1, rounds + 1):
        draw = rng(SEED, *(("pretrain",) if client < 0 else ("train", round, client)))
        if not keep and round > 1:  # a client that keeps nothing starts each round afresh
            key, queue, at = copy.deepcopy(net), first_queue(spec, len(images), client), 0
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


@pytest.mark.parametrize(("keep", "symmetric"), [(True, False), (False, True)])
def test_one_client__is_a_plain_moco_loop(tmp_path: Path, keep: bool, symmetric: bool) -> None:
    """27 images: the last batch of an epoch is short, and no batch fills the queue of 13."""
    kept = "keep" if keep else "reset"
    line = tiny(
        f"--clients 1 --rounds {ROUNDS} --seed {SEED} --attacks none "
        f"--train.local_epochs {EPOCHS} --train.lr {LR} --train.batch_size {BATCH} "
        f"--split.members 27 --federation.snapshots {ROUNDS} "
        f"--ssl.symmetric {str(symmetric).lower()} --ssl.key {kept} --ssl.queue_policy {kept} "
        f"--train.optimizer_state {kept} --ssl.dim 16"
    )
    ran(line, tmp_path / "RUN")
    found = Recording(tmp_path / "RUN" / "recording").models()
    assert sorted(found) == list(range(ROUNDS + 1))
    run: Any = open_run(tmp_path / "RUN")
    spec, images = run.settings.ssl.plugin("ssl"), run.images.client_images(0).numpy()
    for round, state in enumerate(plain_moco(images, spec, keep)):
        assert same(found[round], state), f"round {round} differs"
    assert not same(found[ROUNDS - 1], found[ROUNDS])  # it trains at all


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("mode", ["pooled", "public"])
def test_server_training__sees_the_pool_or_the_public_images_and_no_others(
    mode: str, tmp_path: Path
) -> None:
    """It is a plain loop too, with a schedule of its own; then each client goes on from there."""
    line = tiny(
        f"--clients 2 --rounds 1 --seed {SEED} --attacks none --federation.snapshots 1 "
        f"--pretrain {mode} --pretrain-epochs {EPOCHS} --split.public 18 --split.members 27 "
        f"--train.batch_size {BATCH} --train.lr {LR}"
    )
    ran(line, tmp_path / "RUN")
    run: Any = open_run(tmp_path / "RUN")
    recording = Recording(tmp_path / "RUN" / "recording")
    parts = [run.images.client_images(client) for client in (0, 1)]
    images = torch.cat(parts) if mode == "pooled" else run.images.pixels("public")
    spec = run.settings.ssl.plugin("ssl")
    untrained, trained = plain_moco(images.numpy(), spec, True, 1, -1)
    assert same(recording.models("untrained")[0], untrained)
    assert same(recording.models()[0], trained) and not same(trained, untrained)
    assert not same(recording.models()[1], trained)
