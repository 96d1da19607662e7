"""A worker's method and optimizer go from client to client, and no client can tell."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from clients.client_round import ClientRound
from clients.client_setup import ClientSetup, ClientTask
from clients.honest import Honest
from fedmia.defenses.base import Defense, Metrics
from fedmia.federation.ledger import Ledger
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.train import Job, Train
from tests.small_setup import changed, settle
from tests.strategies.conftest import exactly

Weights = list[dict[str, torch.Tensor]]


@pytest.fixture
def uneven(client_setup: ClientSetup) -> ClientSetup:
    """Two clients of 6 and 4 images."""
    parts = {"members": (np.arange(6), np.arange(6, 10))}
    return changed(client_setup, parts=parts, roles=("honest",) * 2, train=Train(1, 4, lr=0.05))


@dataclass(frozen=True)
class Decays(Defense):
    """Trains by an optimizer of other options."""

    def adapt(self, job: Job, memory: dict[str, Any]) -> None:
        job.optimizer.param_groups[0]["weight_decay"] = 0.5


def uploads(client_setup: ClientSetup, *, keep: bool) -> Weights:
    """What clients send and keep in two rounds; each with a kit of its own unless `keep`."""
    store, rounds = Ledger(), []
    received = client_setup.method(-1, None).shared_state()
    for round in (1, 2):
        for client in (0, 1):
            at = client_setup if keep else replace(client_setup)
            client_round = ClientRound(
                at, store.load("main", client), ClientTask(client, round, "main", False), received
            )
            rounds.append(settle(store, client_round, Honest().answer(client_round)).state)
            client_state: Any = store.load("main", client)
            rounds.append({n: t.clone() for n, t in client_state.tensors.items()})
        received = received | rounds[-2]
    return rounds


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(
    "more",
    [
        {}, {"defense": ((f"{__name__}:Decays", {}, frozenset({0})),)},
        {"ssl": ("dino", {"dim": 4, "prototypes": 4, "freeze_epochs": 2.0})},
        {"ssl": ("swav", {"dim": 4, "prototypes": 4, "queue": 8})},
        {"ssl": ("byol", {"dim": 4, "momentum_schedule": "cosine", "key": "reset"}),
         "train": Train(1, 4, optimizer="adamw", warmup_epochs=1.0, optimizer_state="reset")},
        {"model": ("smallnet", {"width": 2, "norm": "batch"}), "batch_norm": "local",
         "train": Train(1, 4, optimizer="lars"),
         "ssl": ("moco", {"dim": 4, "queue": 4, "queue_policy": "reset"})},
        {"model": ("vit-tiny", {"width": 12, "heads": 3, "depth": 4, "patch": 2}),
         "ssl": ("mae", {"decoder_width": 8, "decoder_depth": 1})},
        {"strategy": ("scaffold", {})}, {"strategy": ("fedema", {})},
        {"defense": (("dpsgd", {}, frozenset({0})),)},
    ],
    ids=lambda more: "-".join(str(v) for v in more.values())[:40],
)  # fmt: skip
def test_kit__clients_train_as_with_methods_of_their_own(
    uneven: ClientSetup, more: dict[str, Any]
) -> None:
    setup = changed(uneven, **more)
    pairs = zip(*(uploads(setup, keep=keep) for keep in (True, False)), strict=True)
    assert all(exactly(*pair) for pair in pairs)


METHODS = list[SSLMethod]()


@dataclass(frozen=True)
class Notes(Defense):
    """Notes what each client trains with."""

    def train(self, job: Job, memory: dict[str, Any]) -> Metrics:
        METHODS.append(job.method)
        return super().train(job, memory)


def test_kit__is_one_method_for_all_clients(uneven: ClientSetup) -> None:
    METHODS.clear()
    setup = changed(uneven, defense=((f"{__name__}:Notes", {}, frozenset({0, 1})),))
    uploads(setup, keep=True)
    assert len(METHODS) == 4 and len({id(method) for method in METHODS}) == 1


def test_job__ends_with_its_own_order_or_with_the_run(client_setup: ClientSetup) -> None:
    setup = replace(client_setup, stop=threading.Event())
    received = setup.method(-1, None).shared_state()
    halts = [threading.Event() for _ in range(2)]
    jobs = [
        ClientRound(setup, None, ClientTask(0, 1, "main", False), received, halt=halt).init()
        for halt in halts
    ]
    assert not jobs[0].stop() and not jobs[1].stop()
    halts[0].set()
    assert jobs[0].stop() and not jobs[1].stop()
    setup.stop.set()  # type: ignore[union-attr]
    assert jobs[1].stop()


def test_kit__is_a_threads_own_and_stays_at_home(uneven: ClientSetup) -> None:
    uploads(uneven, keep=True)
    results, cache = [pickle.loads(pickle.dumps(uneven)).method_cache.take()], uneven.method_cache
    other = threading.Thread(target=lambda: results.append(cache.take()))
    other.start()
    other.join()
    assert results == [None, None]
    pair = cache.take()
    assert pair is not None and not pair[1].state and cache.take() is None
