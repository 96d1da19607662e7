"""A training step reads nothing back, so that a GPU is never waited for: checked without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedmia.defenses import dpsgd
from fedmia.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.train import Job, Train, make_optimizer
from tests.ssl.methods import case

# Operations whose result, or the shape of it, the host has to wait for.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "is_nonzero")


class Reads(TorchDispatchMode):
    """Names of operations that a host waits for; boolean indices among them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        boolean = any(t is not None and t.dtype == torch.bool for t in indices)
        if name in WAITS or boolean:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


class Drawn(Job):
    """A job whose views are drawn before it begins: who gets which is decided on the CPU."""

    def batches(self) -> Any:
        return iter(self.ready)

    def draw(self) -> None:
        self.ready = list(super().batches())


def job_of(name: str, images: Tensor) -> Drawn:
    method, train = case(name).build(), Train(local_epochs=2, batch_size=8)
    method.begin_first_round()
    return Drawn(
        method, make_optimizer(method, train), images.numpy(), Augment(), train, rng(0, "waits"),
        0, 6, torch.device("cpu"),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "ssl",
    [
        "moco", "mocov3", "byol", "dino", "simclr", "vicreg", "lejepa", "mae", "cae", "saim",
        "ibot", "dinov2",
    ],
)  # fmt: skip
def test_run__no_step_waits(ssl: str, images: Tensor) -> None:
    job = job_of(ssl, images)
    job.draw()
    with Reads() as reads:
        job.run()
    assert job.step == 6 and reads.names == []


def test_dpsgd__reads_its_sums_when_the_steps_are_over(images: Tensor) -> None:
    with Reads() as draws:
        list(dpsgd.poisson_batches(job_of("moco", images)))
    job = job_of("moco", images)
    with Reads() as reads:
        dpsgd.DPSGD().train(job, {})
    assert job.step == 6 and len(reads.names) == len(draws.names) + 6  # each once a round


def test_augment__what_is_done_to_pixels_does_not_wait(images: Tensor) -> None:
    augmentation, x = Augment(blur_p=0.5, solarize_p=0.3), images.float() / 255
    u = torch.rand(20, augmentation.draws, generator=torch_rng(0, "waits"))
    (part,) = augmentation.plan(u, True, (8, 8), 20, x.device)
    with Reads() as reads:
        augmentation.view(x[part.rows], part)
    assert reads.names == [] and len(part.jitter.scale) > 1 and len(part.blur) and len(part.solar)
