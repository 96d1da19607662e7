"""A worker's method and optimizer go from client to client, and no client can tell."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clients.client_context import ClientContext, RoundTask
from clients.client_round import ClientRound
from clients.honest import Honest
from fedmia.defenses.base import Defense
from fedmia.ssl.base import SSLMethod
from fedmia.ssl.train import Job, Train
from fedmia.storage.snapshot import MemoryStore

SIZES = (6, 4)
Weights = list[dict[str, torch.Tensor]]


@pytest.fixture
def client_context(tmp_path: Path, images: torch.Tensor) -> ClientContext:
    """Two clients of 6 and 4 images."""
    np.save(tmp_path / "images.npy", images.numpy())
    return ClientContext(
        seed=0, images_file=tmp_path / "images.npy", roles=("honest",) * 2,
        parts={"members": tuple(np.split(np.arange(10), np.cumsum(SIZES)[:-1]))},
        targets=np.arange(0), held=np.arange(0), known=(np.arange(0), np.arange(0)),
        model=("smallnet", {"width": 2}), ssl=("moco", {"dim": 4, "queue": 4}),
        strategy=("fedavg", {}), train=Train(local_epochs=1, batch_size=4, lr=0.05),
        public=np.arange(0), defenses=(), attack=None, sets=(), turns=1, share=1.0,
        attacked_rate=None, attacker_trains=True, batch_norm="average", channels=3, size=8,
        mean=(0.5,) * 3, std=(0.25,) * 3, total_rounds=4, device="cpu", threads=1,
    )  # fmt: skip


@dataclass(frozen=True)
class Decays(Defense):
    """Trains by an optimizer of other options."""

    def adapt(self, job: Job, memory: dict[str, Any]) -> None:
        job.optimizer.param_groups[0]["weight_decay"] = 0.5


def uploads(client_context: ClientContext, *, keep: bool) -> Weights:
    """What clients send and keep in two rounds; each with a kit of its own unless `keep`."""
    store, rounds = MemoryStore(), []
    received = client_context.method(-1, None).shared_state()
    for round in (1, 2):
        for client in range(len(SIZES)):
            at = client_context if keep else replace(client_context)
            client_round = ClientRound(at, store, RoundTask(client, round, "main", False), received)
            rounds.append(Honest().answer(client_round).state)
            client_state = store.load("main", client)
            assert client_state is not None
            rounds.append({n: t.clone() for n, t in client_state.tensors.items()})
        received = received | rounds[-2]
    return rounds


def same(a: Weights, b: Weights) -> bool:
    return all(
        x.keys() == y.keys() and all(torch.equal(x[n], y[n]) for n in x)
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {}, {"ssl": ("moco", {"dim": 4, "queue": 4, "queue_policy": "reset"})},
        {"ssl": ("byol", {"dim": 4, "key": "reset"})},
        {"ssl": ("dino", {"dim": 4, "prototypes": 4, "freeze_epochs": 2.0})},
        {"ssl": ("swav", {"dim": 4, "prototypes": 4, "queue": 8})},
        {"ssl": ("vicreg", {"dim": 4}), "train": Train(1, 4, optimizer_state="reset")},
        {"ssl": ("byol", {"dim": 4, "momentum_schedule": "cosine"}),
         "train": Train(1, 4, optimizer="adamw", warmup_epochs=1.0)},
        {"train": Train(1, 4, optimizer="lars")},
        {"model": ("smallnet", {"width": 2, "norm": "batch"}), "batch_norm": "local"},
        {"model": ("vit-tiny", {"width": 12, "heads": 3, "depth": 4, "patch": 2}),
         "ssl": ("mae", {"decoder_width": 8, "decoder_depth": 1})},
        {"strategy": ("scaffold", {})}, {"strategy": ("fedema", {})},
        {"defenses": (("dpsgd", {}, frozenset({0})),)},
        {"defenses": ((f"{__name__}:Decays", {}, frozenset({0})),)},
    ],
    ids=lambda more: "-".join(str(v) for v in more.values())[:40],
)  # fmt: skip
def test_kit__clients_train_as_with_methods_of_their_own(
    client_context: ClientContext, more: dict[str, Any]
) -> None:
    context = replace(client_context, **more)
    assert same(uploads(context, keep=True), uploads(context, keep=False))


def test_kit__builds_one_method_for_all_clients(
    client_context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, build = [], ClientContext.method

    def counted(self: ClientContext, client: int, images: int | None) -> SSLMethod:
        built.append(client)
        return build(self, client, images)

    monkeypatch.setattr(ClientContext, "method", counted)
    uploads(client_context, keep=True)
    assert built == [-1, 0]


def test_site__orders_share_what_stays_in_this_process(client_context: ClientContext) -> None:
    context = replace(client_context, stop=threading.Event())
    one, other = (context.with_halt(threading.Event()) for _ in range(2))
    assert one.method_cache is other.method_cache and one.images is other.images
    context.stop.set()  # type: ignore[union-attr]
    assert one.is_stopped() and other.is_stopped() and one.halt is not other.halt


def test_kit__is_a_threads_own_and_stays_at_home(client_context: ClientContext) -> None:
    uploads(client_context, keep=True)
    results = []
    other = threading.Thread(target=lambda: results.append(client_context.method_cache.take()))
    other.start()
    other.join()
    assert (
        results == [None] and pickle.loads(pickle.dumps(client_context)).method_cache.take() is None
    )
    pair = client_context.method_cache.take()
    assert pair is not None and not pair[1].state and client_context.method_cache.take() is None
