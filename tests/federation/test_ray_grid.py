"""The grid of Ray's actors without Ray: a stand-in answers in its place, at once and in order."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, MessageType, MetricRecord, RecordDict
from ray.exceptions import RayActorError

from fedmia.federation import cluster
from fedmia.federation.cluster import ClientResources, RayGrid
from fedmia.storage.snapshot import MemoryStore

Answer = Callable[[float], Any]


class StandIn:
    """What the grid uses of Ray; an actor answers a number, or raises what it answers.

    Args:
        answer: of the value that a client is sent.
        nodes: what each machine of the cluster has.
    """

    def __init__(self, answer: Answer, *nodes: dict[str, float]) -> None:
        self.answer, self.hired, self.stored = answer, 0, list[Any]()
        self._nodes = nodes or ({"CPU": 1.0},)
        self._results: dict[int, Any] = {}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": node} for node in self._nodes]

    def put(self, value: Any) -> Any:
        self.stored.append(value)
        return value

    def remote(self, **options: Any) -> Any:
        return lambda worker: SimpleNamespace(remote=self._hire)

    def _hire(self, *given: Any) -> Any:
        self.hired += 1
        ready, answer = (
            SimpleNamespace(remote=call) for call in (lambda: self._later(None), self._work)
        )
        return SimpleNamespace(ready=ready, answer=answer)

    def _work(self, content: RecordDict, kind: str, node: int, clients: int, state: Any) -> int:
        result = self.answer(float(content.metric_records["m"]["value"]))  # type: ignore[arg-type]
        if isinstance(result, Exception):
            return self._later(result)
        message = Message(content, dst_node_id=node, message_type=kind)
        reply = Message(RecordDict({"m": MetricRecord({"value": result})}), reply_to=message)
        return self._later((reply, None))

    def _later(self, result: Any) -> int:
        self._results[number := len(self._results)] = result
        return number

    def wait(self, out: list[int], num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        return out[:num_returns], out[num_returns:]

    def get(self, number: int) -> Any:
        if isinstance(result := self._results[number], Exception):
            raise result
        return result


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RayGrid]:
    """`start(ray, cpus=1, gpus=0)`: a grid of three clients on a stand-in."""

    def grid(ray: StandIn, cpus: float = 1.0, gpus: float = 0.0) -> RayGrid:
        monkeypatch.setattr(cluster, "ray", ray)
        monkeypatch.setattr(cluster, "START", 0.5)  # who has no worker left soon says so
        context: Any = SimpleNamespace(images=np.zeros((1, 3, 8, 8), np.uint8))
        return RayGrid(context, 3, ClientResources(cpus, gpus), MemoryStore())

    return grid


def ask(grid: RayGrid, value: float) -> list[Message]:
    """The replies of all clients to one content."""
    content = RecordDict({"m": MetricRecord({"value": value})})
    return list(
        grid.send_and_receive(
            Message(content, dst_node_id=node, message_type=MessageType.TRAIN)
            for node in grid.get_node_ids()
        )
    )


def values(replies: list[Message]) -> list[Any]:
    return [reply.content.metric_records["m"]["value"] for reply in replies]


def test_dead_worker__another_takes_its_place(start: Callable[..., RayGrid]) -> None:
    """The only one dies of its first order: the other two are answered, and those after them."""
    orders = list[float]()

    def answer(value: float) -> Any:
        orders.append(value)
        return RayActorError() if len(orders) == 1 else value

    ray = StandIn(answer)
    grid = start(ray)
    replies = ask(grid, 5.0)
    (failed,) = (reply for reply in replies if reply.has_error())
    assert failed.error.reason == "its Ray worker died"
    assert values([r for r in replies if not r.has_error()]) == [5.0, 5.0]
    assert values(ask(grid, 6.0)) == [6.0] * 3 and ray.hired == 2


def test_contents__are_those_of_the_round_and_stored_once(start: Callable[..., RayGrid]) -> None:
    ray = StandIn(lambda value: value)
    grid = start(ray)
    before = len(ray.stored)
    for round in (1.0, 2.0, 3.0):
        assert values(ask(grid, round)) == [round] * 3
    assert len(ray.stored) - before == 3


@pytest.mark.parametrize(
    ("cpus", "gpus", "nodes", "workers"),
    [
        (1.0, 0.0, ({"CPU": 2.0},), 2),
        (1.0, 0.0, ({"CPU": 2.0}, {"CPU": 4.0}), 3),  # as many as there are clients
        (0.5, 0.0, ({"CPU": 1.2},), 2),
        (1.0, 1.0, ({"CPU": 4.0, "GPU": 1.0},), 1),
        (1.0, 0.5, ({"CPU": 4.0, "GPU": 1.0},), 2),
        (2.0, 0.5, ({"CPU": 2.0, "GPU": 1.0}, {"CPU": 4.0}), 1),  # the second has no GPU
    ],
)
def test_workers__as_many_as_cores_and_gpus_of_each_node_hold(
    cpus: float, gpus: float, nodes: Any, workers: int, start: Callable[..., RayGrid]
) -> None:
    ray = StandIn(lambda value: value, *nodes)
    start(ray, cpus, gpus)
    assert ray.hired == workers
