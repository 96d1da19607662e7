"""A node's roles, its answers to orders and what it keeps, on numbers that are known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from fedmia import __version__
from fedmia.flower.answers import WEIGHTS, void_beside_scores
from fedmia.flower.nodes import check_agreement
from fedmia.flower.releases import digest
from fedmia.flower.store import NodeStates, NodeStore, pack_state
from fedmia.records.privacy import Epsilon
from fedmia.storage.arrays import record
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
    stated = Epsilon(3.0, 1e-6, 4, "guaranteed", "It holds.", unit="client", noise_source="entropy")
    found = void_beside_scores(stated)
    assert found.standing == WEIGHTS and found.assumptions.startswith("It holds. It covers the wei")
    assert (found.value, found.delta, found.rounds) == (3.0, 1e-6, 4)
    assert (found.unit, found.noise_source) == ("client", "entropy")


def numbers(root: Path, *asked: tuple[int | None, str, int]) -> list[int | None]:
    """What is there for a round, a branch and a client."""
    found = [NodeStore(root, round).load(branch, client) for round, branch, client in asked]
    assert all(one is None or float(one.tensors["a"][0]) == one.memory["n"] for one in found)
    return [one and one.memory["n"] for one in found]


def state(number: int) -> ClientState:
    return ClientState({"a": torch.tensor([float(number)])}, {"n": number})


def test_node_store__branches_and_clients_are_apart(tmp_path: Path) -> None:
    """Round 10 comes after round 9; a round that is ordered again starts where it began; and a
    branch that nobody forked is empty."""
    for round in (9, 10, 11):
        store = NodeStore(tmp_path, round)
        store.save("main", 0, state(round))
        store.save("zero", 1, state(-round))
    assert numbers(
        tmp_path, (None, "main", 0), (11, "main", 0), (12, "zero", 1), (10, "main", 0),
        (None, "main", 1), (None, "zero", 0),
    ) == [11, 10, -11, None, None, None]  # fmt: skip
    assert len([*tmp_path.rglob("main/**/*.safetensors")]) == 2  # as many as can be asked for
    NodeStore(tmp_path).fork_one("main", "zero", 0)
    NodeStore(tmp_path, 12).save("main", 0, state(12))
    assert numbers(tmp_path, (12, "zero", 0), (None, "main", 0)) == [11, 12]


def test_node_store__a_save_that_dies_leaves_the_old_state_whole(tmp_path: Path) -> None:
    NodeStore(tmp_path, 1).save("main", 3, state(1))
    with pytest.raises(TypeError):
        broken = ClientState({"a": torch.zeros(3)}, {"round": object()})
        NodeStore(tmp_path, 2).save("main", 3, broken)
    (tmp_path / "main" / "client-0003" / "round-000002.partial").write_bytes(b"cut sh")
    assert numbers(tmp_path, (None, "main", 3)) == [1]


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
    whole = {"source": "main", "target": "zero"}
    assert calls == [
        ("kept", {0: {"branch": "zero"}}), ("kept", {1: {"branch": "zero"}}),
        ("fork", {0: whole, 1: whole}),
    ]  # fmt: skip
