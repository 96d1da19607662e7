"""A node's roles, its answers to orders and what it keeps, on numbers that are known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedmia import __version__
from fedmia.flower.answers import WEIGHTS, void_beside_scores
from fedmia.flower.node_store import NodeStore, digest
from fedmia.flower.nodes import check_agreement
from fedmia.flower.store import NodeStates, pack_state
from fedmia.flower_internals import set_identity
from fedmia.records.privacy import Epsilon
from fedmia.storage.arrays import record, tensors
from fedmia.storage.snapshot import ClientState
from strategies.failure_policy import FederationError


def order(round: int = 1, branch: str = "main", weight: float = 1.0, **more: Any) -> RecordDict:
    config = ConfigRecord({"branch": branch, "server-round": round, "craft": False})
    arrays = {"arrays": record({"w": torch.tensor([weight, 2.0])}), **more}
    return RecordDict({"config": config, **arrays})


def test_digest__tells_orders_apart_by_all_that_was_ordered() -> None:
    beside = record({"clip": torch.ones(1)})
    digests = [
        digest(o) for o in (
            order(), order(2), order(branch="zero"), order(weight=1.5), order(broadcast=beside),
            order(broadcast=record({"clip": torch.full((1,), 2.0)})),
            order(broadcast=record({"other": torch.ones(1)})),
            RecordDict({**order(), "arrays": record({"w": torch.tensor([[1.0, 2.0]])})}),
            RecordDict({**order(), "arrays": record({"w": torch.tensor([1.0, 2.0]).double()})}),
        )
    ]  # fmt: skip
    assert len(set(digests)) == len(digests) and digest(order()) == digests[0]


def test_agree__names_the_first_client_that_differs() -> None:
    same = {"fedmia": __version__, "channels": 3, "size": 8}
    check_agreement({0: same, 1: dict(same)}, channels=3, size=8)
    for odd in ({"fedmia": "0.0.1"}, {"channels": 1}, {"size": 32}):
        ((name, value),) = odd.items()
        with pytest.raises(FederationError, match=f"client 1: {name} {value}, not {same[name]}"):
            check_agreement({0: same, 1: {**same, **odd}, 2: {**same, **odd}}, channels=3, size=8)


def test_beside_scores__withdraws_the_standing_and_nothing_else() -> None:
    stated = Epsilon(
        value=3.0,
        delta=1e-6,
        rounds=4,
        standing="guaranteed",
        assumptions="It holds.",
        unit="client",
        noise_source="entropy",
    )
    found = void_beside_scores(stated)
    assert found.standing == WEIGHTS and found.assumptions.startswith("It holds. It covers the wei")
    assert (found.value, found.delta, found.rounds) == (3.0, 1e-6, 4)
    assert (found.unit, found.noise_source) == ("client", "entropy")


def numbers(root: Path, *asked: tuple[str, int]) -> list[int | None]:
    """What is there of a branch and a client."""
    found = [NodeStore(root).load(branch, client) for branch, client in asked]
    assert all(one is None or float(one.tensors["a"][0]) == one.memory["n"] for one in found)
    return [one and one.memory["n"] for one in found]


def state(number: int) -> ClientState:
    return ClientState({"a": torch.tensor([float(number)])}, {"n": number})


def answered(root: Path, round: int, branch: str = "main", fails: bool = False) -> Any:
    """The node's answer to an order: how often it worked by then."""

    def work(kept: ClientState | None) -> Any:
        if fails:
            return Message(Error(0, "no room"), reply_to=message), None
        times = kept.memory["n"] + 1 if kept else 1
        metrics = MetricRecord({"loss": float(times), "client": 0})
        arrays = record({"w": torch.full((2,), float(times))})
        content = RecordDict({"arrays": arrays, "metrics": metrics})
        return Message(content, reply_to=message), state(times)

    message = Message(order(round, branch), dst_node_id=2, message_type="train")
    reply = NodeStore(root).answer(branch, 0, message, work)
    if reply.has_error():
        return reply.error.reason
    sent = tensors(reply.content.array_records["arrays"])["w"]
    metrics = reply.content.metric_records["metrics"]
    assert dict(metrics) == {"loss": float(sent[1]), "client": 0}
    return metrics["loss"]


def test_node_store__branches_and_clients_are_apart(tmp_path: Path) -> None:
    """A branch that nobody forked is empty, and what follows a fork is its own."""
    store = NodeStore(tmp_path)
    for number in (9, 10, 11):
        store.save("main", 0, state(number))
        store.save("zero", 1, state(-number))
    assert numbers(tmp_path, ("main", 0), ("zero", 1), ("main", 1), ("zero", 0)) == [
        11, -11, None, None,
    ]  # fmt: skip
    store.fork("main", "zero", 2)
    store.save("main", 0, state(12))
    assert numbers(tmp_path, ("zero", 0), ("main", 0), ("zero", 1)) == [11, 12, -11]


def test_node_store__an_order_that_comes_again_is_answered_and_not_worked(tmp_path: Path) -> None:
    """Any other order goes on from the last release, and an error is none."""
    set_identity(1)
    assert [answered(tmp_path, round) for round in (1, 2, 2, 3, 3)] == [1, 2, 2, 3, 3]
    assert answered(tmp_path, 4, fails=True) == "no room" and answered(tmp_path, 3) == 3
    assert answered(tmp_path, 2) == 4  # was released; accounted again
    NodeStore(tmp_path).fork("main", "zero", 1)
    assert [answered(tmp_path, 3, "zero") for _ in range(2)] == [5, 5]
    assert numbers(tmp_path, ("main", 0), ("zero", 0)) == [4, 5]


def test_node_store__a_save_that_dies_leaves_the_old_state_whole(tmp_path: Path) -> None:
    store = NodeStore(tmp_path)
    store.save("main", 3, state(1))
    with pytest.raises(TypeError):
        store.save("main", 3, ClientState({"a": torch.zeros(3)}, {"round": object()}))
    (tmp_path / "main-0003.partial").write_bytes(b"cut sh")
    assert numbers(tmp_path, ("main", 3)) == [1]


def test_node_states__come_as_the_node_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {0: ClientState({"a": torch.arange(3)}, {"n": [1]}), 1: None}
    calls = list[Any]()

    def ask(grid: Any, nodes: Any, action: str, orders: dict[int, Any]) -> Any:
        calls.append((action, orders))
        return {client: pack_state(states.get(client)) for client in orders}

    monkeypatch.setattr("fedmia.flower.store.ask", ask)
    store = NodeStates(SimpleNamespace(), {0: 70, 1: 71})  # type: ignore[arg-type]
    client_state = store.load("zero", 0)
    assert client_state is not None and client_state.memory == {"n": [1]}
    assert client_state.tensors["a"].tolist() == [0, 1, 2] and store.load("zero", 1) is None
    store.fork("main", "zero", 2)
    whole = {"source": "main", "target": "zero", "clients": 2}
    assert calls == [
        ("kept", {0: {"branch": "zero"}}), ("kept", {1: {"branch": "zero"}}),
        ("fork", {0: whole, 1: whole}),
    ]  # fmt: skip
