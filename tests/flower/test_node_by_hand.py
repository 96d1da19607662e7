"""A node's roles, its answers to orders and what it keeps, on numbers that are known."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from fedmia import __version__
from fedmia.cli.command import parse
from fedmia.cli.commands import SIMULATE
from fedmia.evaluation.node import WEIGHTS, void_beside_scores
from fedmia.flower.nodes import check_agreement
from fedmia.flower.private import _split
from fedmia.flower.releases import digest
from fedmia.flower.store import NodeStates, NodeStore, pack_state
from fedmia.options.errors import InputError
from fedmia.records.privacy import Epsilon
from fedmia.storage.arrays import record
from fedmia.storage.snapshot import ClientState
from strategies.failure_policy import FederationError


def split(names: list[bytes], members: int, client: int = 1) -> Any:
    flags = "--clients 3 --split.known 2"
    experiment = parse(SIMULATE, shlex.split(flags)).settings
    return _split(experiment, client, names, members, len(names) - members)


def test_split__known_and_scored_of_both_sides() -> None:
    """Ten members, a copy among them, and seven others, two copies of one among them."""
    names = [bytes([i]) for i in (0, 1, 2, 3, 4, 5, 6, 7, 8, 0, *range(20, 25), 24, 24)]
    found = split(names, 10)
    assert [len(p) for p in found.parts] == [0, 9, 0] and found.malicious == 0
    assert found.members.tolist() == list(range(9)) == found.parts[1].tolist()
    assert found.owner.tolist() == [1] * 9
    sides = (
        (found.known_members, found.scored_members, set(range(9))),
        (found.known_nonmembers, found.scored_nonmembers, set(range(10, 15))),
    )
    for known, scored, all_of in sides:
        assert len(known) == 2 and {*known.tolist(), *scored.tolist()} == all_of
        assert len(known) + len(scored) == len(all_of)
    assert (found.duplicates_removed, found.distinct) == (3, 14)


def test_split__two_must_be_left_to_score_and_no_image_on_both_sides() -> None:
    five = [bytes([i]) for i in range(9)]
    assert len(split(five, 5).scored_nonmembers) == 2  # four of which two are known
    with pytest.raises(InputError, match="3 distinct nonmembers are too few"):
        split(five[:8], 5)
    with pytest.raises(InputError, match="share 1 byte-equal"):
        split([*five, five[0]], 5)


def order(round: int = 1, branch: str = "main", weight: float = 1.0, **more: Any) -> RecordDict:
    config = ConfigRecord({"branch": branch, "round": round, "craft": False})
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


def test_node_store__branches_and_clients_are_apart(tmp_path: Path) -> None:
    """Round 10 comes after round 9, and a branch that nobody forked is empty."""
    for round in (9, 10, 11):
        store = NodeStore(tmp_path, round)
        store.save("main", 0, ClientState({"a": torch.tensor(float(round))}, {"n": round}))
        store.save("zero", 1, ClientState({"a": torch.tensor(-1.0)}, {"n": -round}))
    numbers = [
        (client_state := NodeStore(tmp_path, r).load(branch, client)) and client_state.memory["n"]
        for r, branch, client in ((None, "main", 0), (11, "main", 0), (12, "zero", 1),
                                  (10, "main", 0), (None, "main", 1), (None, "zero", 0))
    ]  # fmt: skip
    assert numbers == [11, 10, -11, None, None, None]


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
