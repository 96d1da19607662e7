"""Clients that are away, began anew or were never reached hold up nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from strategies.failure_policy import FailurePolicy, FederationError
from strategies.replies import Exchange, ReplyReader, collect_updates
from tests.clock import Clock
from tests.recording.plain import NODES, PlainGrid
from tests.strategies.conftest import some_state

CLIENTS = 3  # client 0 is on the first of NODES


def answer(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"num-examples": 1})
    return Message(
        RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message
    )


class Leaving(PlainGrid):
    """Client 0's node is away until `back`; another client's reply comes with the next look."""

    def __init__(self) -> None:
        super().__init__(answer, CLIENTS)
        self.events = list[str]()
        self.back = time.monotonic() + 1e9

    def get_node_ids(self) -> Iterable[int]:
        return self._nodes if time.monotonic() > self.back else self._nodes[1:]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        (message,) = messages
        (name,) = super().push_messages([message])
        client = NODES.index(message.metadata.dst_node_id)
        if not client and time.monotonic() < self.back:
            gone = Error(ErrorCode.NODE_UNAVAILABLE, "Error: Node Unavailable")
            self._replies[name] = Message(gone, reply_to=message)
        self.events.append(f"to {client}")
        return [name]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        first = sorted(message_ids, key=lambda name: NODES.index(int(name.split("-")[0])))[:1]
        self.events += [f"of {NODES.index(int(name.split('-')[0]))}" for name in first]
        if self.events[-2:] == ["of 1", "of 2"]:
            self.back = time.monotonic() + 0.05
        return super().pull_messages(first)


def orders() -> dict[int, Message]:
    content = RecordDict({"arrays": ArrayRecord(torch_state_dict=some_state(1))})
    return {c: Message(content, NODES[c], "train") for c in range(CLIENTS)}


def collect(grid: Any, policy: str) -> list[int]:
    reader = ReplyReader(some_state(1), {NODES[c]: c for c in range(CLIENTS)}, 1)
    failure_policy = FailurePolicy(CLIENTS, policy)
    return [u.client for u in collect_updates(grid, orders(), reader, failure_policy, "main")]


class Away(PlainGrid):
    """Nobody lists client 0's node. Its second order takes it nearly an hour, or never reaches it.

    Attributes:
        sent: when client 0 was sent its message.
    """

    def __init__(self, reached: bool) -> None:
        super().__init__(answer, CLIENTS)
        self.sent, self._reached, self._began = list[float](), reached, time.monotonic()

    def get_node_ids(self) -> Iterable[int]:
        return self._nodes[1:]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        (message,) = messages
        (name,) = super().push_messages([message])
        if message.metadata.dst_node_id == NODES[0]:
            if not (self._reached and self.sent):
                gone = Error(ErrorCode.NODE_UNAVAILABLE, "Error: Node Unavailable")
                self._replies[name] = Message(gone, reply_to=message)
            self.sent.append(time.monotonic() - self._began)
        return [name]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        late = bool(self.sent[1:]) and time.monotonic() - self._began < self.sent[1] + 3500
        answering = (n for n in message_ids if n.split("-")[0] != str(NODES[0]))
        return super().pull_messages(answering if late and self._reached else message_ids)


def test_retry__of_a_node_that_left_lets_the_others_answer(clock: Clock) -> None:
    """They are read before it is back, and the updates keep the order of partition ids."""
    grid = Leaving()
    assert collect(grid, "retry") == [0, 1, 2]
    assert grid.events == ["to 0", "to 1", "to 2", "of 0", "of 1", "of 2", "to 0", "of 0"]


def test_retry__of_a_node_that_stays_away_is_sent_in_any_case(clock: Clock) -> None:
    """Flower says so then. The time that it has is no silence of the others."""
    clock.speed = 200.0  # ten seconds between two looks
    grid = Away(reached=True)
    assert collect(grid, "retry") == [0, 1, 2]
    assert grid.sent == [pytest.approx(0, abs=1), pytest.approx(600, abs=20)]
    grid = Away(reached=False)
    with pytest.raises(FederationError, match=r"client 0 failed: .*Unavailable \(3 times\)"):
        collect(grid, "retry")
    assert len(grid.sent) == 3


@pytest.mark.parametrize("idempotent", [True, False])
def test_node__that_began_anew_is_sent_its_message_again_or_has_failed(
    idempotent: bool, clock: Clock
) -> None:
    began = {node: "1" for node in NODES[:CLIENTS]}
    sent, answered = list[int](), dict[str, Message]()

    def push(messages: list[Message]) -> list[str]:
        sent.append(NODES.index(messages[0].metadata.dst_node_id))
        if len(sent) > CLIENTS:
            answered[str(len(sent))] = Message(RecordDict(), reply_to=messages[0])
        return [str(len(sent))]

    grid: Any = SimpleNamespace(
        get_nodes=lambda: [SimpleNamespace(node_id=n, last_activated_at=began[n]) for n in began],
        push_messages=push, pull_messages=lambda ids: [answered[i] for i in ids if i in answered],
    )  # fmt: skip
    exchange = Exchange(grid, orders(), idempotent)
    for client in range(CLIENTS):
        exchange.send(client)
    began[NODES[1]] = "2"
    assert exchange.pull() == {} and sent == [0, 1, 2]  # it was not looked for again yet
    clock.skip(6)
    came = exchange.pull()
    if idempotent:
        assert not came and sent == [0, 1, 2, 1] and {*exchange.waiting} == {0, 1, 2}
        assert exchange.pull()[1].has_content()
    else:
        assert came[1].error.reason == "its node began anew" and sent == [0, 1, 2]
    clock.skip(6)
    assert {*exchange.waiting} == {0, 2} and exchange.pull() == {}


@pytest.mark.parametrize("names", [[], [None]])
def test_message__that_flower_does_not_take_is_waited_for_by_nobody(names: list[Any]) -> None:
    """It is too large, or malformed: Flower's grid gives no id then."""
    grid: Any = SimpleNamespace(get_nodes=lambda: [], push_messages=lambda messages: names)
    with pytest.raises(FederationError, match="client 0 failed: Flower did not take its message"):
        collect(grid, "stop")
