"""A training step reads nothing back, so that a GPU is never waited for: checked without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedmia.defenses import dpsgd
from fedmia.nets.smallnet import SmallNet
from fedmia.nets.vit import ViTTiny
from fedmia.options import registry
from fedmia.options.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Recipe, SSLMethod
from fedmia.ssl.train import Batch, Job, Train, make_optimizer

# Operations whose result, or the shape of it, the host has to wait for.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "is_nonzero")


class Reads(TorchDispatchMode):
    """Names of operations that a host waits for; boolean indices among them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        boolean = any(t is not None and t.dtype == torch.bool for t in indices)
        if name in WAITS or boolean:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def made(ssl: str) -> SSLMethod:
    decodes, patches = ssl in ("mae", "cae"), ssl in ("mae", "cae", "saim", "ibot")
    small = {"decoder_width": 8, "decoder_depth": 1} if decodes else {"dim": 8}
    small = {} if ssl == "saim" else small
    net = ViTTiny(width=12, heads=3, depth=4, patch=2) if patches else SmallNet(width=4)
    recipe = Recipe((0.5,) * 3, (0.25,) * 3, 20)
    method: SSLMethod = registry.build("ssl", ssl, small).build(
        net.build(3, 8), recipe, torch_rng(0, "waits")
    )
    method.begin_first_round()
    return method


def job_of(method: SSLMethod, images: Tensor) -> Job:
    train = Train(local_epochs=2, batch_size=8)
    return Job(
        method, make_optimizer(method, train), images.numpy(), Augment(), train, rng(0, "waits"),
        0, 6, torch.device("cpu"),
    )  # fmt: skip


class InHand(Job):
    """Its batches are drawn before the first step: who gets which view is decided on the CPU."""

    def batches(self) -> Iterator[Batch]:
        return iter(self.ready)

    @classmethod
    def of(cls, job: Job) -> InHand:
        found = cls(**vars(job))
        found.ready = list(job.batches())
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "ssl",
    ["moco", "mocov3", "byol", "dino", "simclr", "vicreg", "mae", "cae", "saim", "ibot"],
)
def test_run__no_step_waits(ssl: str, images: Tensor) -> None:
    job = InHand.of(job_of(made(ssl), images))
    with Reads() as reads:
        job.run()
    assert job.step == 6 and reads.found == []


def test_dpsgd__reads_its_sums_when_the_steps_are_over(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(made("moco"), images)
    ready = list(dpsgd.poisson_batches(job))
    monkeypatch.setattr(dpsgd, "poisson_batches", lambda _: iter(ready))
    with Reads() as reads:
        dpsgd.DPSGD().train(job, {})
    assert job.step == 6 and len(reads.found) == 6  # each once a round


def test_augment__what_is_done_to_pixels_does_not_wait(images: Tensor) -> None:
    recipe, x = Augment(blur_p=0.5, solarize_p=0.3), images.float() / 255
    u = torch.rand(20, recipe.draws, generator=torch_rng(0, "waits"))
    (part,) = recipe._plan(u, True, (8, 8)).parts(20, x.device)
    with Reads() as reads:
        recipe._view(x[part.rows], part)
    assert reads.found == [] and len(part.jitter.scale) > 1 and len(part.blur) and len(part.solar)
