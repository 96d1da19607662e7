"""Clients that train in one pass leave what they leave alone, but for rounding."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message, MessageType, RecordDict

from clients.client_group import count_together, form_groups, train_group
from clients.client_round import ClientRound
from clients.client_setup import ClientSetup, ClientTask
from clients.honest import Honest
from fedmia.federation.inline import InlineGrid
from fedmia.federation.ledger import Ledger
from fedmia.recording import Recording
from fedmia.ssl import TwoView
from fedmia.ssl.base import State
from fedmia.ssl.train import Train
from fedmia.storage.arena import Arena
from fedmia.storage.snapshot import Update
from tests.small_runs import ran
from tests.small_setup import changed, settle, small_setup
from tests.watched import same

from .conftest import tiny

METHODS = {
    "moco": ("moco", {"dim": 4, "queue": 4}),
    "mocov2": ("mocov2", {"dim": 4, "symmetric": True, "key": "reset"}),
    "simclr": ("simclr", {"dim": 4, "temperature": 0.2}),
    "byol": ("byol", {"dim": 4}),  # batch norm in its heads
    "mocov3": ("mocov3", {"dim": 4}),
    "vicreg": ("vicreg", {"dim": 4}),
    "lejepa": ("lejepa", {"dim": 4, "slices": 5, "head_norm": "layer"}),
}
NORMS = {"simclr": "batch", "mocov3": "split"}
THIRD = {"mocov2": 3, "vicreg": 3, "lejepa": 3}  # two keys an image; no bank
WHOLE = "adamw, lars and clip_grad treat a weight tensor as one"
SIZES = (5, 5, 4, 5)  # in batches of 2 the last of an epoch is one image


def small_clients(folder: Path, sizes: Sequence[int] = SIZES) -> ClientSetup:
    """Clients of so many random images each."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (sum(sizes), 3, 8, 8), dtype=np.uint8)
    np.save(folder / "images.npy", images)
    parts = np.split(np.arange(len(images)), np.cumsum(sizes)[:-1])
    return small_setup(folder / "images.npy", parts)


@pytest.fixture
def client_setup(tmp_path: Path) -> ClientSetup:
    return small_clients(tmp_path)


def rounds_of(
    client_setup: ClientSetup, store: Ledger, round: int, clients: Sequence[int]
) -> list[ClientRound]:
    """Clients before their work; what they receive differs from round to round."""
    received = client_setup.method(-1, None).shared_state()
    received = {name: tensor * (1 + 0.1 * round) for name, tensor in received.items()}
    tasks = [ClientTask(client, round, "main", False) for client in clients]
    kept = [store.load("main", client) for client in clients]
    return [ClientRound(client_setup, *pair, received) for pair in zip(kept, tasks, strict=True)]


def worked(
    client_setup: ClientSetup, together: bool, third: int = 2
) -> tuple[list[Update], Ledger]:
    """The updates of three rounds. One client misses the second; where its bank is then at another
    place than those of the others, or its norms count otherwise, only two of them train together in
    the third."""
    updates, store, arena = list[Update](), Ledger(), Arena()
    plain: Any = client_setup.first_method
    for round, clients in enumerate(([0, 1, 2, 3], [0, 2, 3], [0, 1, 2, 3]), 1):
        rounds = rounds_of(client_setup, store, round, clients)
        groups = form_groups(rounds) if together else []
        new = list[Update]()
        for group in groups:
            results = train_group([rounds[place] for place in group], plain, arena)
            new += [settle(store, rounds[i], one) for i, one in zip(group, results, strict=True)]
        alone = {*range(len(rounds))} - {place for group in groups for place in group}
        new += [settle(store, rounds[place], Honest().answer(rounds[place])) for place in alone]
        assert not together or [len(g) for g in groups] == [{1: 3, 2: 2, 3: third}[round]]
        updates += sorted(new, key=lambda update: update.client)
    return updates, store


def close(one: State, other: State, exact: float = 1e-9) -> None:
    """Float64 within `exact`, float32 to its rounding."""
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        near = exact if tensor.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(tensor, other[name], rtol=near, atol=near, msg=name)


@pytest.fixture
def exact() -> Iterator[None]:
    """In float64: batch norm of two images makes a rounding of float32 as large as it likes."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.usefixtures("exact")
def test_group__is_one_after_the_other(name: str, client_setup: ClientSetup) -> None:
    """What leaves, what stays and the losses, over rounds, with local batch norm."""
    train = replace(client_setup.experiment.train, local_epochs=3)
    norm = {"width": 2, "norm": NORMS.get(name, "group")}
    more = {"train": train, "model": ("smallnet", norm), "batch_norm": "local"}
    # Norms make much of rounding, and chaos in batches of two.
    near = 1e-6 if name in ("byol", "lejepa") else 1e-9
    if name == "byol":
        more["train"] = replace(train, batch_size=5)
    client_setup = changed(client_setup, ssl=METHODS[name], **more)
    assert count_together(changed(client_setup, clients_at_once=3)) == (3, "")
    (alone, before), (together, after) = (
        worked(client_setup, side, THIRD.get(name, 2)) for side in (False, True)
    )
    for one, other in zip(alone, together, strict=True):
        assert (one.client, one.round, one.examples) == (other.client, other.round, other.examples)
        assert other.metrics["loss"] == pytest.approx(one.metrics["loss"], rel=1e-6)
        close(one.state, other.state, near)
    for client in range(len(SIZES)):
        states = [store.load("main", client) for store in (before, after)]
        assert states[0] is not None and states[1] is not None
        close(states[0].tensors, states[1].tensors, near)
        assert states[0].memory == states[1].memory


def test_group__without_momenta_that_stay(client_setup: ClientSetup) -> None:
    train = replace(client_setup.experiment.train, optimizer_state="reset", schedule="constant")
    client_setup = changed(client_setup, train=train)
    for one, other in zip(
        worked(client_setup, False)[0], worked(client_setup, True)[0], strict=True
    ):
        close(one.state, other.state)


@pytest.mark.parametrize("name", ["moco", "simclr", "mocov3"])
def test_group__in_bfloat16_is_near(name: str, client_setup: ClientSetup) -> None:
    train = replace(client_setup.experiment.train, precision="bfloat16")
    client_setup = changed(client_setup, train=train, ssl=METHODS[name])
    for one, other in zip(
        worked(client_setup, False)[0], worked(client_setup, True)[0], strict=True
    ):
        assert other.metrics["loss"] == pytest.approx(one.metrics["loss"], rel=0.1)


@pytest.mark.parametrize("name", ["moco", "simclr"])
def test_pass__after_another_is_as_the_first(name: str, tmp_path: Path) -> None:
    """Its method served other clients: banks, momenta and statistics that stay with a client."""
    setups = [
        changed(
            small_clients(tmp_path, (5, 5, 5, 5)), ssl=METHODS[name], batch_norm="local",
            model=("smallnet", {"width": 2, "norm": "batch"}),
        )
        for _ in range(2)
    ]  # fmt: skip
    ends = []
    for setup, passes in zip(setups, ([[0, 1], [2, 3]], [[2, 3]]), strict=True):
        arena, plain = Arena(), copy.deepcopy(setup.first_method)
        assert isinstance(plain, TwoView)
        for clients in passes:
            last = train_group(rounds_of(setup, Ledger(), 1, clients), plain, arena)
        ends.append(last)
    for (update, new), (other, renewed) in zip(*ends, strict=True):
        assert same(update.state, other.state) and new is not None and renewed is not None
        assert same(dict(new.tensors), dict(renewed.tensors)) and len(new.tensors) > 20


def test_plain__stays_as_it_is_for_other_threads(client_setup: ClientSetup) -> None:
    plain: Any = client_setup.method(-1, None)
    rounds, before = rounds_of(client_setup, Ledger(), 1, [0, 1]), copy.deepcopy(plain)
    train_group(rounds, plain, Arena())
    assert same(plain.state_dict(), before.state_dict()) and plain.bank.pointer == 0


def test_states__take_no_room_of_states_that_were_replaced(client_setup: ClientSetup) -> None:
    _, store = worked(client_setup, True)
    for client in (0, 1, 3):
        state = store.load("main", client)
        assert state is not None
        for tensor in state.tensors.values():
            room = tensor.untyped_storage().nbytes()
            assert (
                room <= 9 * tensor.nbytes
            )  # three clients before and after a round, and half more


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, ""),
        ({"strategy": ("scaffold", {})}, "strategy scaffold acts on each client"),
        ({"ssl": ("dino", {"dim": 4})}, "dino has steps that are of one client"),
        ({"ssl": ("moco", {"mixup": 0.5})}, "moco has steps that are of one client"),
        ({"ssl": ("mocov2", {"queue_policy": "reset"})}, "mocov2 has steps that are of one client"),
        ({"train": {"optimizer": "adamw"}}, WHOLE),
        ({"train": {"clip_grad": 3.0}}, WHOLE),
        ({"client_timeout": 9.0}, "federation.client_timeout is of one client"),
    ],
)
def test_count__is_one_where_a_client_cannot_share_a_pass(
    more: dict[str, Any], reason: str, client_setup: ClientSetup
) -> None:
    more = {
        name: replace(getattr(client_setup.experiment, name), **values)
        if name == "train"
        else values
        for name, values in more.items()
    }
    count = count_together(changed(client_setup, clients_at_once=7, **more))
    assert count == ((1, reason) if reason else (7, ""))


@pytest.mark.parametrize(
    ("size", "clients", "images", "device", "count"),
    [
        (8, 64, 5, "cpu", 64), (8, 63, 5, "cpu", 1), (8, 64, 6, "cpu", 1), (9, 64, 5, "cpu", 1),
        (9, 4, 6, "meta", 64),
    ],
)  # fmt: skip
def test_auto__is_many_on_a_gpu_and_for_tiny_images(
    size: int, clients: int, images: int, device: str, count: int, tmp_path: Path
) -> None:  # fmt: skip
    parts = [np.arange(images)] * clients
    train = Train(batch_size=16, lr=0.1)
    client_setup = changed(small_setup(tmp_path / "none", parts), train=train)
    federation = replace(client_setup.experiment.federation, clients=clients)
    experiment = replace(client_setup.experiment, federation=federation)
    client_setup = replace(client_setup, experiment=experiment, size=size, device=device)
    assert count_together(client_setup) == (count, "")


def test_count__is_one_where_most_clients_have_a_size_of_their_own(tmp_path: Path) -> None:
    reason = "most clients have numbers of images of their own"
    for sizes, count in (((5, 5, 4, 3), 3), ((5, 5, 4, 3, 2), 1), ((5, 4), 1)):
        client_setup = changed(small_clients(tmp_path, sizes), clients_at_once=3)
        assert count_together(client_setup) == (count, "" if count == 3 else reason)


def test_form_groups__of_honest_clients_without_defence(client_setup: ClientSetup) -> None:
    roles = ("passive", "honest", "honest", "honest")
    defended = [("gaussian", {}, [1])]
    for more in ({"roles": roles}, {"defense": defended}):
        rounds = rounds_of(changed(client_setup, **more), Ledger(), 1, range(4))
        groups = form_groups(rounds)
        assert groups == [[1, 3]] if "roles" in more else groups == [[0, 3]]


FLAGS = (
    "--clients 7 --partition iid --split.members 84 --attacks none --attacker passive "
    "--federation.participation 0.8 --defense gaussian --defended-clients 2 "
    "--federation.snapshots 4 --clients-at-once "
)


@pytest.mark.slow(seconds=8)
def test_run__in_passes_of_four_is_one_after_the_other_and_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for rounding; an attacker, a defended client and an order too few are among them, and two
    threads take them. The report says so."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    reports, models = list[Any](), list[Any]()
    for name, count in (("alone", 1), ("a", 4), ("b", 4)):
        reports.append({**ran(tiny(f"{FLAGS}{count}"), tmp_path / name), "config": None})
        assert capsys.readouterr().err == ""
        models.append(Recording(tmp_path / name / "recording").models())
    alone, one, other = models
    assert list(alone) == list(one) == list(range(5))
    for round, state in alone.items():
        close(state, one[round])
    assert not same(alone[4], one[4]) and all(same(one[r], other[r]) for r in one)
    assert reports[1] == reports[2]
    losses = [[row["loss"] for row in report["rounds"]] for report in reports[:2]]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    (said,) = {*reports[1]["notes"]} - {*reports[0]["notes"]}
    assert "4" in said and "one pass" in said and {*reports[0]["notes"]} < {*reports[1]["notes"]}


@pytest.mark.parametrize(
    ("error", "passes", "said"),
    [
        (RuntimeError("no batching rule\nfor it"), [6],
         "6 clients failed in one pass, now 1: RuntimeError: no batching rule for it"),
        (torch.OutOfMemoryError("of 8 GiB"), [6, 3, 3],
         "6 clients failed in one pass, now 3: OutOfMemoryError: of 8 GiB"),
    ],
)  # fmt: skip
def test_pass__that_fails_is_said_and_each_answers_by_itself_or_half_as_many(
    error: Exception, passes: list[int], said: str
) -> None:
    lines, sizes, alone = list[str](), list[int](), list[int]()

    def answer(message: Message, client: int, *rest: Any) -> Any:
        alone.append(client)
        return Message(RecordDict(), reply_to=message), None

    def together(orders: Any, *rest: Any) -> Any:
        sizes.append(len(orders))
        if len(orders) > 3:
            raise error
        return {i: (Message(RecordDict(), reply_to=one[0]), None) for i, one in enumerate(orders)}

    grid = InlineGrid(answer, 6, 1, 1, None, None, together, 6, lines.append)
    for _ in range(2):
        orders = [
            Message(RecordDict(), dst_node_id=node, message_type=MessageType.TRAIN)
            for node in grid.get_node_ids()
        ]
        assert len(list(grid.send_and_receive(orders))) == 6
    grid.close()
    assert lines == [said] and sizes == passes
    assert sorted(alone) == sorted([*range(6)] * (2 if len(passes) == 1 else 1))
