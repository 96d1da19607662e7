"""The inline grid keeps Flower's contract; a failing client stops a run on either backend."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmia.federation.inline import InlineGrid
from tests.clock import Clock
from tests.flower_clients import answering
from tests.small_runs import SMALL, simulate

CLIENTS = 4


def echo() -> ClientApp:
    """Answers with its partition, its thread count and what it was sent; 13 is too much for it."""
    app = ClientApp()

    @app.train()
    def _(message: Message, context: Context) -> Message:
        sent = float(message.content.metric_records["m"]["value"])  # type: ignore[arg-type]
        if sent == 13:
            raise MemoryError("no room")
        if sent == 14:
            barrier.wait(timeout=60)
        client = int(context.node_config["partition-id"])
        values = {"client": client, "value": sent, "threads": torch.get_num_threads()}
        return Message(RecordDict({"m": MetricRecord(values)}), reply_to=message)

    return app


barrier = threading.Barrier(2)


@pytest.fixture
def grid() -> Iterator[InlineGrid]:
    built = InlineGrid(answering(echo()), CLIENTS, workers=2, threads=1)
    yield built
    built.close()


def order(node: int, value: float) -> Message:
    content = RecordDict({"m": MetricRecord({"value": value})})
    return Message(content, dst_node_id=node, message_type=MessageType.TRAIN)


def test_nodes__one_a_client_and_messages_in_flight_are_told_apart(grid: InlineGrid) -> None:
    nodes = list(grid.get_node_ids())
    assert len(set(nodes)) == CLIENTS
    replies = list(grid.send_and_receive([order(n, n / 2) for n in nodes]))
    found = {r.metadata.src_node_id: r.content.metric_records["m"] for r in replies}
    assert {n: (v["client"], v["value"], v["threads"]) for n, v in found.items()} == {
        n: (client, n / 2, 1) for client, n in enumerate(nodes)
    }
    first = list(grid.push_messages([order(nodes[0], 1), order(nodes[1], 2)]))
    list(grid.pull_messages(first[:1]))
    second = list(grid.push_messages([order(nodes[2], 3)]))
    assert second[0] not in first
    expected, values = {*first[1:], *second}, list[float]()
    while len(values) < 2:  # a pull brings what is there
        values += [r.content.metric_records["m"]["value"] for r in grid.pull_messages(expected)]  # type: ignore[misc]
    assert sorted(values) == [2, 3]


def test_workers__two_clients_train_side_by_side(grid: InlineGrid) -> None:
    """Each waits for the other: one after the other they would never meet."""
    nodes = list(grid.get_node_ids())
    replies = list(grid.send_and_receive([order(n, 14) for n in nodes[:2]]))
    assert not any(r.has_error() for r in replies)


def test_error__becomes_a_reply_that_names_it_and_others_go_on(grid: InlineGrid) -> None:
    nodes = list(grid.get_node_ids())
    replies = grid.send_and_receive([order(nodes[0], 13), order(nodes[1], 1)])
    failed, other = sorted(replies, key=lambda reply: reply.metadata.src_node_id)
    assert failed.has_error() and not other.has_error()
    assert failed.error.reason == "MemoryError: no room"


def test_late_clients__each_leaves_a_thread_for_the_others(clock: Clock) -> None:
    """As many clients at work as before, though one after the other never answers."""
    began, free, app = threading.Semaphore(0), threading.Event(), ClientApp()

    @app.train()
    def _(message: Message, context: Context) -> Message:
        if float(message.content.metric_records["m"]["value"]) == 15:  # type: ignore[arg-type]
            began.release()
            free.wait()
        return Message(RecordDict(), reply_to=message)

    def answered(node: int, value: float) -> Message:
        sent, results = set(grid.push_messages([order(node, value)])), list[Message]()
        if value == 15:
            assert began.acquire(timeout=60), "nobody was left to take the order"
            clock.skip(999)
        while not results:
            results += grid.pull_messages(sent)
        return results[0]

    grid = InlineGrid(answering(app), CLIENTS, workers=1, threads=1, timeout=99)
    nodes = list(grid.get_node_ids())
    try:
        for node in nodes[:2]:
            late = answered(node, 15)
            assert late.has_error() and "no answer within 99 s" in late.error.reason
        assert not answered(nodes[2], 1).has_error()
    finally:
        free.set()
        grid.close()


BOOM = """
from dataclasses import dataclass
from fedmia.defenses.base import Defense

@dataclass(frozen=True)
class Boom(Defense):
    '''Raises.'''

    def release(self, received, trained, memory, rng):
        raise RuntimeError("no room on\\ndevice 3")
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["inline", "ray"])
def test_client_that_raises__exit_code_1_and_one_line(
    backend: str, one_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A defence from outside the repository raises in client 2's own process or thread."""
    (tmp_path / "raising_defense.py").write_text(BOOM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "raising_defense", raising=False)
    flags = f"{SMALL} --clients 4 --rounds 2 --attacks none --backend {backend} "
    flags += "--defense raising_defense:Boom --defended-clients 2"
    assert simulate(flags, tmp_path / "RUN") == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("fedmia: the run failed: round 1: client 2 failed: ")
    assert "no room on device 3" in err


def test_arrays__are_read_once_by_no_client_and_are_each_clients_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads that parse an array's header at once can break one another in CPython 3.11."""
    readers: list[str] = []
    plain = np.load

    def noted(*given: Any, **more: Any) -> Any:
        readers.append(threading.current_thread().name)
        return plain(*given, **more)

    monkeypatch.setattr(np, "load", noted)
    app, calls = ClientApp(), []

    @app.train()
    def _(message: Message, context: Context) -> Message:
        state = message.content.array_records["arrays"].to_torch_state_dict()
        calls.append(state["w"].clone())
        state["w"].add_(1.0)  # nobody else's
        return Message(RecordDict(), reply_to=message)

    grid = InlineGrid(answering(app), CLIENTS, workers=2, threads=1)
    content = RecordDict({"arrays": ArrayRecord(torch_state_dict={"w": torch.arange(3.0)})})
    list(grid.send_and_receive(
        Message(content, dst_node_id=n, message_type=MessageType.TRAIN) for n in grid.get_node_ids()
    ))  # fmt: skip
    grid.close()
    assert len(calls) == CLIENTS and all(torch.equal(w, torch.arange(3.0)) for w in calls)
    assert readers == [threading.current_thread().name]
