"""The grid of Ray's actors without Ray: a stand-in answers in its place, at once and in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message, MessageType, MetricRecord, RecordDict
from ray.exceptions import RayActorError

from clients.client_setup import ClientSetup
from fedmia.federation import cluster, inline
from fedmia.federation.cluster import ClientResources, Placement, RayGrid, describe_placements
from fedmia.federation.ledger import Ledger
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.errors import InputError

Answer = Callable[[float], Any]
NEVER = TimeoutError("an order that is never answered")


@dataclass(frozen=True)
class Actor:
    number: int
    ready: Any = field(compare=False)
    answer: Any = field(compare=False)


class StandIn:
    """What the grid uses of Ray; an actor answers a number, or raises what it answers.

    Args:
        answer: of the value that a client is sent.
        nodes: what each machine of the cluster has.
    """

    def __init__(self, answer: Answer, *nodes: dict[str, float]) -> None:
        self.answer, self.hired, self.stored, self.now = answer, 0, list[Any](), 0.0
        self.lost, self.killed = set[int](), list[int]()
        self._nodes = nodes or ({"CPU": 1.0},)
        self._results: dict[int, Any] = {}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": node} for node in self._nodes]

    def put(self, value: Any) -> Any:
        self.stored.append(value)
        return value

    def remote(self, **options: Any) -> Any:
        return lambda worker: SimpleNamespace(remote=self._hire)

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor.number)

    def _hire(self, *rest: Any) -> Actor:
        number, self.hired = self.hired, self.hired + 1
        here = Placement("node", "127.0.0.1", "", "cpu")

        def ready() -> int:
            return self._later(RayActorError() if number in self.lost else here)

        def answer(*order: Any) -> int:
            return self._later(RayActorError()) if number in self.lost else self._work(*order)

        return Actor(number, SimpleNamespace(remote=ready), SimpleNamespace(remote=answer))

    def _work(self, content: RecordDict, kind: str, client: int, state: Any) -> int:
        result = self.answer(float(content.metric_records["m"]["value"]))  # type: ignore[arg-type]
        if isinstance(result, Exception):
            return self._later(result)
        message = Message(content, dst_node_id=client + 2, message_type=kind)
        reply = Message(RecordDict({"m": MetricRecord({"value": result})}), reply_to=message)
        return self._later((reply, None))

    def _later(self, result: Any) -> int:
        self._results[number := len(self._results)] = result
        return number

    def wait(self, out: list[int], num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        there = [number for number in out if self._results[number] is not NEVER][:num_returns]
        self.now += 0 if there else timeout
        return there, [number for number in out if number not in there]

    def get(self, number: int) -> Any:
        if isinstance(result := self._results[number], Exception):
            raise result
        return result


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RayGrid]:
    """`start(ray, cpus=1, gpus=0)`: a grid of three clients on a stand-in."""

    def grid(
        ray: StandIn, cpus: float = 1.0, gpus: float = 0.0, timeout: float | None = None
    ) -> RayGrid:
        monkeypatch.setattr(cluster, "ray", ray)
        for module in (cluster, inline):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: ray.now))
        setup: Any = SimpleNamespace(images=np.zeros((1, 3, 8, 8), np.uint8))
        return RayGrid(setup, 3, ClientResources(cpus, gpus), Ledger(), timeout)

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


def test_late_client__its_worker_is_killed_and_replaced(start: Callable[..., RayGrid]) -> None:
    ray = StandIn(lambda value: NEVER if value == 5.0 and ray.hired == 1 else value)
    grid = start(ray, timeout=0.05)
    replies = ask(grid, 5.0)
    (late,) = (reply for reply in replies if reply.has_error())
    assert late.error.reason == "no answer within 0.05 s"
    assert values([r for r in replies if not r.has_error()]) == [5.0, 5.0]
    assert (ray.killed, ray.hired) == ([0], 2)


def test_lost_machine__an_order_meets_one_of_its_actors_only(start: Callable[..., RayGrid]) -> None:
    """All that are idle there are called, and replaced, before the order goes out again."""
    ray = StandIn(lambda value: value, {"CPU": 3.0})
    grid = start(ray)
    assert values(ask(grid, 1.0)) == [1.0] * 3
    ray.lost = {0, 1, 2}
    content = RecordDict({"m": MetricRecord({"value": 2.0})})
    order = Message(content, dst_node_id=2, message_type=MessageType.TRAIN)
    (failed,) = grid.send_and_receive([order])
    assert failed.has_error() and failed.error.reason == "its Ray worker died"
    again = Message(content, dst_node_id=2, message_type=MessageType.TRAIN)
    assert values(list(grid.send_and_receive([again]))) == [2.0]
    assert sorted(ray.killed) == [0, 1, 2] and ray.hired == 6


def test_describe_placements__counts_by_gpu_and_says_what_is_unused() -> None:
    cuda, cpu = (Placement("n", "10.0.0.1", "3", device) for device in ("cuda", "cpu"))
    other = Placement("m", "10.0.0.2", "0", "cuda")
    assert describe_placements([cuda, other, cuda], 0.5) == (
        "clients at once: 2 on GPU 3 of 10.0.0.1, 1 on GPU 0 of 10.0.0.2"
    )
    assert describe_placements([cpu], 0.5).endswith("1 on GPU 3 of 10.0.0.1; they train on the CPU")
    assert not describe_placements([], 0.5)  # none of them could start
    assert not describe_placements([cpu, cpu], 0.0)  # nothing that the user does not know
    machines = describe_placements([cpu, other], 0.0)
    assert machines == "clients at once: 1 on CPU of 10.0.0.1, 1 on CPU of 10.0.0.2"


@pytest.mark.parametrize(
    ("device", "gpus", "share", "own", "cap"),
    [
        ("auto", 1, 0.25, "cuda", 0.25), ("cuda:3", 1, 0.25, "cuda", 0.25),
        ("cuda", 2, 1.0, "cuda", None), ("auto", 4, 0.0, "cpu", None), ("cpu", 1, 0.5, "cpu", None),
    ],
)  # fmt: skip
def test_worker__trains_on_the_first_gpu_that_it_sees(
    device: str, gpus: int, share: float, own: str, cap: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """And takes its share of that GPU's memory."""
    caps = list[float]()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", caps.append)
    setup = prepared_setup(device)
    worker = worker_of(setup, share)
    assert worker.site.device == own and caps == ([] if cap is None else [cap])


def worker_of(setup: ClientSetup, gpus: float) -> cluster.Worker:
    packed = cluster.cloudpickle.dumps((setup, {}))
    return cluster.Worker([], packed, np.zeros(0), ClientResources(1.0, gpus, setup.device))


def prepared_setup(device: str) -> ClientSetup:
    """One that no client works with."""
    rest: dict[str, Any] = {f.name: None for f in fields(ClientSetup)}
    return ClientSetup(**rest | {"experiment": Experiment.complete(), "device": device})


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_worker__refuses_a_gpu_that_its_machine_lacks(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Ray claims that there is one, as beside a torch that has no CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="gpus_per_client .* 0.5: torch finds no CUDA GPU on "):
        worker_of(prepared_setup(device), 0.5)


class LateStart(StandIn):
    """Its first actor never says that it is ready."""

    def _hire(self, *rest: Any) -> Actor:
        actor = super()._hire(*rest)
        late = SimpleNamespace(remote=lambda: self._later(NEVER))
        return actor if actor.number else replace(actor, ready=late)


def test_placements__are_said_where_the_rounds_end_before_all_have_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = list[str]()
    ray = LateStart(lambda value: value, {"CPU": 3.0, "GPU": 1.0})
    monkeypatch.setattr(cluster, "ray", ray)
    setup: Any = SimpleNamespace(images=np.zeros((1, 3, 8, 8), np.uint8))
    share = ClientResources(1.0, 0.25)
    grid = RayGrid(setup, 3, share, Ledger(), None, lines.append)
    assert values(ask(grid, 1.0)) == [1.0] * 3 and lines == []
    grid.close()
    assert lines == ["clients at once: 2 on GPU  of 127.0.0.1; they train on the CPU"]


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
        (1.0, 0.0, ({"CPU": 2.0}, {"CPU": 4.0}), 3),  # as many as there are clients
        (0.5, 0.0, ({"CPU": 1.2},), 2),
        (1.0, 0.5, ({"CPU": 4.0, "GPU": 1.0},), 2),
        (2.0, 0.5, ({"CPU": 2.0, "GPU": 1.0}, {"CPU": 4.0}), 1),  # the second has no GPU
        (1.0, 0.6, ({"CPU": 4.0, "GPU": 2.0},), 2),  # three would need parts of two GPUs
        (1.0, 2.0, ({"CPU": 4.0, "GPU": 3.0},), 1),
    ],
)
def test_workers__as_many_as_cores_and_gpus_of_each_node_hold(
    cpus: float, gpus: float, nodes: Any, workers: int, start: Callable[..., RayGrid]
) -> None:
    ray = StandIn(lambda value: value, *nodes)
    start(ray, cpus, gpus)
    assert ray.hired == workers
