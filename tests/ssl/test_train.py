"""Local training: the schedule, the stream of randomness, and steps against plain torch."""

from __future__ import annotations

import copy
import math
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.train import (
    Job,
    Train,
    draw_two_views,
    group_views,
    layout_for,
    make_optimizer,
)
from fedmia.storage.snapshot import LocalTraining
from strategies.fedprox import FedProx
from tests.ssl.methods import same

AUGMENT = Augment(hue=0.1)


def make_job(method: SSLMethod, images: Tensor, train: Train, **more: Any) -> Job:
    values: dict[str, Any] = {
        "method": method, "optimizer": make_optimizer(method, train), "images": images.numpy(),
        "augment": AUGMENT, "train": train, "rng": rng(0, "train"), "step": 0,
        "total_steps": 20, "device": torch.device("cpu"),
    }  # fmt: skip
    return Job(**(values | more))


class ChannelsLast(Job):
    """A job on the CPU in the layout of a GPU's."""

    @cached_property
    def layout(self) -> torch.memory_format:
        return torch.channels_last


def weights(method: SSLMethod) -> dict[str, Tensor]:
    return method.shared_state() | method.local_state()


@given(st.integers(0, 100), st.integers(1, 100))
def test_rate__cosine_of_the_global_step(step: int, total: int) -> None:
    rate = Train(lr=0.4).rate(step, total)
    done = min(step / total, 1)
    assert rate == pytest.approx(0.4 * (1 + math.cos(math.pi * done)) / 2)
    assert rate == Train(lr=0.4, local_epochs=7, batch_size=3).rate(step, total)
    assert Train(lr=0.4, schedule="constant").rate(step, total) == 0.4


@pytest.mark.parametrize(
    "wrong", [{"lr": 0.0}, {"batch_size": 0}, {"local_epochs": 0}, {"momentum": 1.0},
              {"schedule": "step"}, {"precision": "float16"}, {"clip_grad": 0.0},
              {"lr_end": -1.0}, {"weight_decay_end": -1}, {"optimizer": "adam"}],
)  # fmt: skip
def test_train__refuses_values_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"Train: option {next(iter(wrong))}"):
        Train(**wrong)


def test_run__equals_a_plain_loop(make_moco: Any, images: Tensor) -> None:
    train = Train(local_epochs=2, batch_size=8, lr=0.05)
    method, plain = make_moco(symmetric=True), make_moco(symmetric=True)
    job = make_job(method, images, train, step=3)
    metrics = job.run()

    optimizer = torch.optim.SGD(plain.encoder.parameters(), 0.05, 0.9, weight_decay=5e-4)
    stream, step, losses = rng(0, "train"), 3, []
    for _ in range(2):
        order = torch.from_numpy(stream.permutation(20))
        shuffled = images[order].float() / 255
        u = torch.from_numpy(stream.random((2, 20, AUGMENT.draws), dtype=np.float32))
        view1, view2 = AUGMENT(shuffled, u[0]), AUGMENT(shuffled, u[1])
        for start in (0, 8, 16):  # the last batch is short
            optimizer.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * step / 20)) / 2
            each = plain.losses(view1[start : start + 8], view2[start : start + 8])
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
            plain.after_step()
            step += 1
            losses += each.tolist()
    assert same(weights(method), weights(plain))
    assert job.step == step == 9
    assert len(losses) == 40
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert job.rng.random() == stream.random()  # neither drew more than the other


def test_batches__are_the_same_however_many_are_augmented_in_one_call(images: Tensor) -> None:
    """As many as take three calls, and each by itself."""
    draw, augment = rng(0, "batches"), Augment()
    batches = [
        (draw.permutation(20)[:6], draw.random((2, 6, augment.draws), np.float32))
        for _ in range(450)
    ]
    together = list(group_views(images, augment, batches))
    alone = [next(iter(group_views(images, augment, [batch]))) for batch in batches]
    assert len(together) == 450 and all(map(torch.equal, sum(together, ()), sum(alone, ())))


def test_two_views__consume_two_rows_of_uniforms_an_image(images: Tensor) -> None:
    stream, twin = rng(3, "a"), rng(3, "a")
    view1, view2 = draw_two_views(images, AUGMENT, stream)
    draws = torch.from_numpy(twin.random((2, 20, AUGMENT.draws), dtype=np.float32))
    assert stream.random() == twin.random()
    assert torch.equal(view1, AUGMENT(images.float() / 255, draws[0]))
    assert torch.equal(view2, AUGMENT(images.float() / 255, draws[1]))
    assert not torch.equal(view1, view2)


def pull(method: Any, mu: float) -> dict[str, Any]:
    """FedProx's client half, as a job's hook."""
    weights = dict(zip(method.shared_parameters(), method.trainable(), strict=True))
    local = LocalTraining(method.shared_state(), {}, {}, {}, weights)
    return {"after_backward": lambda: FedProx(mu=mu).after_backward(local)}


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_run__proximal_term_against_its_formula(make_moco: Any, images: Tensor, mu: float) -> None:
    train = Train(local_epochs=2, batch_size=5, lr=0.05)
    method, plain = make_moco(), make_moco()
    anchor = copy.deepcopy(plain.encoder)
    job = make_job(method, images, train, **pull(method, mu))
    views = list(make_job(plain, images, train).batches())
    job.run()
    optimizer = make_optimizer(plain, train)
    for step, (view1, view2) in enumerate(views):
        optimizer.param_groups[0]["lr"] = train.rate(step, 20)
        pairs = zip(plain.encoder.parameters(), anchor.parameters(), strict=True)
        far = torch.stack([((w - a.detach()) ** 2).sum() for w, a in pairs]).sum()
        loss = plain.losses(view1, view2).mean() + mu / 2 * far
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plain.after_step()
    for got, want in zip(method.encoder.parameters(), plain.encoder.parameters(), strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_run__stops_before_the_next_step(make_moco: Any, images: Tensor) -> None:
    answers = iter([False, False, True])
    job = make_job(make_moco(), images, Train(), stop=lambda: next(answers))
    assert math.isfinite(job.run()["loss"])
    assert job.step == 2
    untouched = make_moco()
    at_once = make_job(untouched, images, Train(), stop=lambda: True)
    assert at_once.run()["loss"] == 0.0
    assert same(weights(untouched), weights(make_moco()))


def test_layout__channels_last_is_a_gpus(make_moco: Any) -> None:
    planes, gpu = torch.contiguous_format, torch.device("cuda:1")
    normed = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    assert layout_for(normed, torch.device("cpu")) == layout_for(make_moco(), gpu) == planes
    assert layout_for(normed, gpu) == torch.channels_last


def test_run__channels_last_stays_near(make_moco: Any, images: Tensor) -> None:
    near, last = (make_job(make_moco(), images, Train(local_epochs=1)) for _ in range(2))
    got = ChannelsLast(**vars(last)).run()["loss"]
    assert got == pytest.approx(near.run()["loss"], rel=1e-4)
