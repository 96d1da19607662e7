"""A client's round by hand: a small job, a desk with a defence, states of random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clients.client_round import ClientRound
from clients.client_setup import ClientTask
from fedmia.federation.ledger import Ledger
from fedmia.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSLMethod, State
from fedmia.ssl.train import Job, Train, make_optimizer
from tests.small_setup import small_setup

MakeJob = Callable[..., Job]
MakeDesk = Callable[..., ClientRound]


@pytest.fixture(scope="session")
def make_job(textures: Callable[..., torch.Tensor]) -> MakeJob:
    """`make_job(method, images=12, seed=0, more={}, **train)`: a job of few steps."""

    def make(
        method: SSLMethod, images: int = 12, seed: int = 0, more: Any = None, **train: Any
    ) -> Job:
        setting = Train(**{"local_epochs": 2, "batch_size": 4, **train})
        steps = setting.local_epochs * -(-images // setting.batch_size)
        values = {
            "method": method, "optimizer": make_optimizer(method, setting),
            "images": textures(images).numpy(), "augment": Augment(), "train": setting,
            "rng": rng(seed, "job"), "step": 0, "total_steps": 2 * steps,
            "device": torch.device("cpu"),
        }  # fmt: skip
        return Job(**{**values, **(more or {})})

    return make


@pytest.fixture(scope="session")
def moco_job(make_moco: Callable[..., SSLMethod], make_job: MakeJob) -> MakeJob:
    """`moco_job(symmetric=False, ..)`: `make_job` on a MoCo of its own."""
    return lambda symmetric=False, **more: make_job(make_moco(symmetric=symmetric), **more)


@pytest.fixture
def make_desk(tmp_path: Path, textures: Callable[..., torch.Tensor]) -> MakeDesk:
    """`make_desk(defense, options, store=None, round=1, received=None, **site)` of one client."""
    file = tmp_path / "images.npy"
    np.save(file, textures(10).numpy())

    def make(
        name: str, options: dict[str, Any], store: Ledger | None = None, round: int = 1,
        received: State | None = None, **more: Any,
    ) -> ClientRound:  # fmt: skip
        values: dict[str, Any] = {
            "model": ("smallnet", {"width": 4}), "ssl": ("moco", {"dim": 8}),
            "train": Train(local_epochs=1, batch_size=5),
            "defense": ((name, options, frozenset({0})),),
        }  # fmt: skip
        client_setup = small_setup(file, [np.arange(10)], **{**values, **more})
        start = client_setup.method(-1, None).shared_state() if received is None else received
        return ClientRound(
            client_setup, store and kept(store), ClientTask(0, round, "main", False), start
        )

    return make


def kept(store: Ledger) -> Any:
    """What client 0 keeps."""
    return store.load("main", 0)


@pytest.fixture(scope="session")
def states() -> tuple[State, State]:
    """Received and trained weights, 5000 in two tensors, 0.1 apart in each weight on average."""
    draw = np.random.default_rng(0)
    received = {"a": draw.normal(size=(40, 100)), "b": draw.normal(size=1000)}
    trained = {n: v + draw.normal(scale=0.1, size=v.shape) for n, v in received.items()}
    as_state = [{n: torch.from_numpy(v).float() for n, v in s.items()} for s in (received, trained)]
    return as_state[0], as_state[1]
