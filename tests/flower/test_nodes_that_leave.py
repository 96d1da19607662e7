"""A node that leaves and returns, with the answers that Flower's SuperLink gives in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Error, Message

from fedmia.federation.inline import SERVER, InlineGrid
from fedmia.flower import client, server
from fedmia.flower.store import ask
from fedmia.flower_internals import NODE_UNAVAILABLE
from fedmia.ssl.base import State
from strategies import replies
from strategies.failure_policy import FederationError
from tests.equivalence.conftest import same
from tests.flower.on_nodes import TINY, last_weights, run
from tests.flower_clients import answering

LEAVER = SERVER + 2  # node of client 1


class SuperLink(InlineGrid):
    """Client 1's node leaves before a kind of message, and is back after `looks` looks for it.

    Args:
        kind: of the message.
        looks: how often the node is not among those connected.
    """

    def __init__(self, kind: str, looks: float) -> None:
        super().__init__(answering(client.app), 2, 1, 1)
        self.kind, self.looks, self.sent_to_nobody = kind, looks, 0
        self._lost: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        away = bool(self.sent_to_nobody) and self.looks > 0
        self.looks -= bool(self.sent_to_nobody)
        nodes = range(SERVER + 1, SERVER + 1 + self.clients)
        return [node for node in nodes if not (away and node == LEAVER)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            about = message.metadata
            leaves = self.looks > 0 and message.metadata.message_type == self.kind
            if leaves and about.dst_node_id == LEAVER:
                self.sent_to_nobody += 1
                names.append(f"lost {self.sent_to_nobody}")
                self._lost[names[-1]] = message
            else:
                names += super().push_messages([message])
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        names = set(message_ids)
        for name in names & self._lost.keys():
            error = Error(NODE_UNAVAILABLE, "Error: Node Unavailable")
            reply = Message(error, reply_to=self._lost.pop(name))
            reply.metadata.__dict__["_src_node_id"] = SERVER  # the SuperLink answers itself
            reply.metadata.__dict__["_reply_to_message_id"] = name
            return [reply]
        return list(super().pull_messages(names))


def rehearse(grid: SuperLink, policy: str, out: Path) -> State:
    """Weights at the end."""
    try:
        run(server.rehearse, grid, f"{TINY} --on-failure {policy}", out)
    finally:
        grid.close()
    return last_weights(out)


@pytest.mark.slow
def test_retry__waits_for_the_node_and_ends_as_if_it_had_stayed(
    tmp_path: Path, inline: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """However often it is looked for: that is one failure, not three."""
    grid = SuperLink("train", 6)
    again = rehearse(grid, "retry", tmp_path / "again")
    assert grid.sent_to_nobody == 1 and grid.looks <= 0
    line = "fedmia: main round 1: client 1 failed: Error: Node Unavailable (retried)"
    assert line in capsys.readouterr().out.splitlines()
    assert same(again, last_weights(inline(TINY)))


class Restarting(SuperLink):
    """Client 1's node begins anew, once, with a kind of message in its hands; nobody says so."""

    begun = 0

    def get_nodes(self) -> list[Any]:
        self.begun += bool(self._lost) and not self.begun
        began = {LEAVER: str(self.begun)}
        return [
            SimpleNamespace(node_id=n, last_activated_at=began.get(n, ""))
            for n in range(SERVER + 1, SERVER + 1 + self.clients)
        ]

    def get_node_ids(self) -> list[int]:
        return list(range(SERVER + 1, SERVER + 1 + self.clients))

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self.looks = 0 if self.sent_to_nobody else 1
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        lost, self._lost = self._lost, {}
        replies = super().pull_messages(set(message_ids) - lost.keys())
        self._lost = lost
        return replies


def test_restarted_node__is_sent_again_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both an order and a question; a second activation of nobody is no second failure."""
    monkeypatch.setattr(replies, "LOOK", 0.05)
    grid = Restarting("query.kept", 1)
    try:
        assert not ask(grid, {1: LEAVER}, "kept", {1: {"branch": "main"}}, patience=20.0)[1]
    finally:
        grid.close()
    assert grid.sent_to_nobody == 1


@pytest.mark.slow
def test_restarted_node__trains_again(
    tmp_path: Path, inline: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "LOOK", 0.05)
    grid = Restarting("train", 1)
    again = rehearse(grid, "retry", tmp_path / "again")
    assert grid.sent_to_nobody == 1 and same(again, last_weights(inline(TINY)))


@pytest.mark.slow
def test_stop__ends_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="round 1: client 1 failed: Error: Node Unavailable"):
        rehearse(SuperLink("train", 1), "stop", tmp_path / "out")


@pytest.mark.parametrize(("looks", "patience"), [(3, 5.0), (1e9, 0.2)])
def test_ask__again_when_the_node_is_back_and_not_for_ever(looks: float, patience: float) -> None:
    grid, order = SuperLink("query.kept", looks), {1: {"branch": "main"}}
    try:
        if looks < 10:  # it keeps nothing yet
            assert not ask(grid, {1: LEAVER}, "kept", order, patience=patience)[1]
        else:
            with pytest.raises(FederationError, match="kept: no answer from client 1"):
                ask(grid, {1: LEAVER}, "kept", order, patience=patience)
    finally:
        grid.close()
    assert grid.sent_to_nobody >= 1
