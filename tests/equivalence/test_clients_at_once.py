"""Clients that train in one pass leave what they leave alone, but for rounding."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clients import app
from clients.client_group import count_together, form_groups, train_group
from clients.client_round import ClientRound
from clients.client_setup import ClientSetup, ClientTask
from clients.honest import Honest
from fedmia.federation.ledger import Ledger
from fedmia.records.note import Note
from fedmia.report.words.notes import in_words
from fedmia.runtime.progress import Display
from fedmia.ssl import TwoView
from fedmia.ssl.base import State
from fedmia.ssl.train import Train
from fedmia.storage.arena import Arena
from fedmia.storage.snapshot import Update
from tests.small_runs import SMALL, ran
from tests.small_setup import changed, settle, small_setup

from .conftest import Run, federated, planned, same, weights

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
    near = 1e-9
    if name == "byol":  # its norms make much of rounding, and chaos in batches of two
        near, more["train"] = 1e-6, replace(train, batch_size=5)
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
        (9, 4, 6, "cuda", 64),
    ],
)  # fmt: skip
def test_auto__is_many_on_a_gpu_and_for_tiny_images(
    size: int, clients: int, images: int, device: str, count: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    parts = [np.arange(images)] * clients
    train = Train(batch_size=16, lr=0.1)
    client_setup = changed(small_setup(tmp_path / "none", parts), train=train)
    federation = replace(client_setup.experiment.federation, clients=clients)
    experiment = replace(client_setup.experiment, federation=federation)
    client_setup = replace(client_setup, experiment=experiment, size=size, device=device)
    plain = replace(client_setup, device="cpu").method(-1, None)
    monkeypatch.setattr(ClientSetup, "method", lambda self, client, images: plain)
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
    "--clients 7 --partition iid --split.members 84 --attacks similarity --attacker passive "
    "--attack.similarity.views 4 --federation.participation 0.8 --defense gaussian "
    "--defended-clients 2 --federation.placebo true "
)


def close_runs(one: Run, other: Run) -> None:
    for branch in ("main", "placebo"):
        a, b = weights(one, branch), weights(other, branch)
        assert list(a) == list(b) and len(a) > 1
        for round, state in a.items():
            close(state, b[round])
    assert [r.loss for r in one.rounds] == pytest.approx([r.loss for r in other.rounds], rel=1e-5)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a run says, of one worker."""
    said: list[str] = []
    monkeypatch.setattr(Display, "line", lambda self, text: said.append(text))
    monkeypatch.setattr("fedmia.federation.backends.count_cores", lambda: 1)
    return said


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The clients of each pass."""
    clients = list[list[int]]()

    def noted(rounds: Sequence[ClientRound], *rest: Any) -> Any:
        clients.append([one.task.client for one in rounds])
        return train_group(rounds, *rest)

    monkeypatch.setattr(app, "train_group", noted)
    return clients


def test_run__in_passes_of_four_is_one_after_the_other_and_repeats(
    passes: list[list[int]], lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker, a defended client and an order too few are among them; two threads take them."""
    alone = federated(planned(FLAGS), tmp_path / "alone")
    assert passes == []
    monkeypatch.setattr("fedmia.federation.backends.count_cores", lambda: 2)
    runs = [federated(planned(FLAGS + "--clients-at-once 4"), tmp_path / n) for n in "ab"]
    assert sorted(passes[: len(passes) // 2]) == sorted(passes[len(passes) // 2 :])
    assert max(map(len, passes)) == 3 and not any({2, 6} & {*clients} for clients in passes)
    close_runs(alone, runs[0])
    for a, b in zip(weights(runs[0]).values(), weights(runs[1]).values(), strict=True):
        assert same(a, b)
    assert not any("one pass" in line or "one after the other" in line for line in lines)


def test_run__goes_on_one_by_one_where_a_pass_fails_and_says_so(
    passes: list[list[int]], lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, work = federated(planned(FLAGS), tmp_path / "alone"), app.train_group

    def broken(rounds: Sequence[ClientRound], *rest: Any) -> Any:
        work(rounds, *rest)
        raise RuntimeError("no batching rule\nfor it")

    monkeypatch.setattr(app, "train_group", broken)
    broke = federated(planned(FLAGS + "--clients-at-once 7"), tmp_path / "broken")
    for branch in ("main", "placebo"):
        pairs = zip(weights(alone, branch).values(), weights(broke, branch).values(), strict=True)
        assert all(same(a, b) for a, b in pairs)
    failed = "6 clients failed in one pass, now 1: RuntimeError: no batching rule for it"
    assert lines.count(failed) == 1 and len(passes) == 1


def test_run__takes_half_as_many_where_memory_is_short(
    passes: list[list[int]], lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, work = federated(planned(FLAGS), tmp_path / "alone"), app.train_group

    def short(rounds: Sequence[ClientRound], *rest: Any) -> Any:
        if len(rounds) > 3:
            raise torch.OutOfMemoryError("of 8 GiB")
        return work(rounds, *rest)

    monkeypatch.setattr(app, "train_group", short)
    halved = federated(planned(FLAGS + "--clients-at-once 7"), tmp_path / "halved")
    close_runs(alone, halved)
    assert [line for line in lines if "one pass" in line] == [
        "6 clients failed in one pass, now 3: OutOfMemoryError: of 8 GiB"
    ]
    assert {len(clients) for clients in passes} == {2}


def test_report__says_that_clients_trained_in_one_pass(tmp_path: Path) -> None:
    """Then they are equal to one after the other but for rounding; else to the bit."""
    few = SMALL + "--clients 3 --partition iid --attacks similarity "
    notes = [
        ran(few + more, tmp_path / f"{i}")["notes"]
        for i, more in enumerate(("", "--clients-at-once 3"))
    ]
    passes = in_words(Note("clients-in-passes", {"clients": 3}))
    assert [one.count(passes) for one in notes] == [0, 1]
