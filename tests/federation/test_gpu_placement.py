"""Which client runs where on Ray: machines that claim GPUs which they do not have.

Ray places by what a machine claims, and tells each process its GPUs in CUDA_VISIBLE_DEVICES. torch
finds none of them, so that clients train on the CPU and the numbers can be compared.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedmia.federation import cluster
from fedmia.federation.cluster import ClientResources, Placement, RayGrid
from fedmia.federation.ledger import Ledger
from tests import watched
from tests.small_runs import SIMILARITY, SMALL, WATCHED, in_round, ran

pytestmark = pytest.mark.slow(seconds=40)
PATIENCE = 180.0  # seconds in which a worker starts, on a busy machine
GPUS = 2  # of each of the two machines


CLAIMS = {"num_cpus": 1, "num_gpus": GPUS}
QUICK = {  # a machine that is gone is missed after seconds, one that is only slow is not
    "health_check_initial_delay_ms": 1000, "health_check_period_ms": 500,
    "health_check_timeout_ms": 20_000, "health_check_failure_threshold": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def one_cluster() -> Iterator[Any]:
    """A Ray cluster of machines on this one; each claims one core and its GPUs."""
    from ray.cluster_utils import Cluster

    cluster.disconnect()  # of the session's, if there is one
    head = {**CLAIMS, "include_dashboard": False, "_system_config": QUICK}
    # Ray notes the cluster where a `ray.init()` of any process would look, and join it: of a
    # `flwr run` in a test beside this one, too. The path is short, as those of sockets must be.
    with TemporaryDirectory(prefix="ray") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # Ray's 15 starves workers beside other tests
        started = Cluster(initialize_head=True, head_node_args=head)
        yield started
        cluster.disconnect()
        started.shutdown()


@pytest.fixture
def machines(one_cluster: Any) -> Any:
    """The cluster with two machines, whatever a test before took from it."""
    if not one_cluster.worker_nodes:
        one_cluster.add_node(**CLAIMS)
    return one_cluster


class Idle:
    """A worker that only says where it is, and needs no torch."""

    def __init__(self, *rest: Any) -> None:
        pass

    def ready(self) -> tuple[str, str]:

        import ray

        return ray.get_runtime_context().get_node_id(), os.environ["CUDA_VISIBLE_DEVICES"]


@pytest.fixture
def places(machines: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """`places(gpus, clients)`: machine and GPUs of each worker, as its own process sees them."""
    import ray
    from ray import cloudpickle

    cluster.connect(machines.address)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # this file imports torch
    monkeypatch.setattr(cluster, "Worker", Idle)
    monkeypatch.setattr(cluster, "describe_placements", lambda *rest: "")
    setup: Any = SimpleNamespace(images=np.zeros((1, 3, 8, 8), np.uint8))

    def place(gpus: float, clients: int) -> list[tuple[str, str]]:
        assert ray.cluster_resources()["GPU"] == 2 * GPUS
        share = ClientResources(0.01, gpus)
        with closing(RayGrid(setup, clients, share, Ledger())) as grid:
            end = time.monotonic() + PATIENCE
            while grid._starting and time.monotonic() < end:
                grid._wait()
            assert not grid._starting  # who does not fit would wait for ever
            placements: list[Any] = list(grid._placements.values())
        while ray.available_resources().get("GPU", 0) < 2 * GPUS and time.monotonic() < end:
            time.sleep(0.1)
        return placements

    yield place
    cluster.disconnect()
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_workers__a_gpu_each_on_two_machines_or_a_share(places: Callable[..., Any]) -> None:
    """Twelve clients, four GPUs: four workers, and none sees the GPU of another. Four quarters lie
    on one device; of 0.6 one fits on each: none has parts of two GPUs."""
    workers = places(1, 12)
    assert Counter(visible for _, visible in workers) == {str(n): 2 for n in range(GPUS)}
    assert len(set(workers)) == len(workers) == 2 * GPUS
    assert sorted(Counter(node for node, _ in workers).values()) == [GPUS, GPUS]
    assert len(set(quarters := places(0.25, 4))) == 1 and len(quarters) == 4
    most = Counter(places(0.6, 12))
    assert len(most) == 2 * GPUS and set(most.values()) == {1}


def test_run__loses_a_machine_and_then_a_worker_and_reports_as_inline(
    machines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of the second machine go on on the first; all see one GPU, and which is noted."""
    answered, dispatched = RayGrid._note_answered, RayGrid._dispatch
    rounds, grids = list[dict[int, Placement]]([{}]), list[RayGrid]()

    def dispatch(self: RayGrid) -> None:
        """The first round waits for both machines, as one may train all clients by itself."""
        if len(rounds) > 1 or not self._starting:
            dispatched(self)

    def note_answered(self: RayGrid, one: Any) -> None:
        order = self._working[one]
        placement = self._placements[order.actor]
        answered(self, one)
        if not self._done[order.name][1].has_error():
            rounds[-1][self.client(order)] = placement
        grids[:] = [self]

    def lose_machine() -> None:
        rounds.append({})
        machines.remove_node(next(iter(machines.worker_nodes)), allow_graceful=False)

    def lose_worker() -> None:
        """One that is idle: it is missed when it gets its next order."""
        import ray

        rounds.append({})
        pid = ray.get(grids[0]._idle[-1].__ray_call__.remote(lambda worker: os.getpid()))
        os.kill(pid, signal.SIGKILL)

    flags = (
        f"{SMALL}{WATCHED}{SIMILARITY} --clients 6 --rounds 3 --attacker none --on-failure retry "
    )
    whole = ran(flags, tmp_path / "inline")
    monkeypatch.setattr(RayGrid, "_note_answered", note_answered)
    monkeypatch.setattr(RayGrid, "_dispatch", dispatch)
    in_round("main", 1, lose_machine)
    watched.SEEN.acts["main", 2] = lose_worker
    flags += f"--backend ray --ray-address {machines.address} --gpus-per-client 1 "
    run = ran(f"{flags} --cpus-per-client 0.1", tmp_path / "ray")
    first, second, last = rounds
    assert first.keys() == second.keys() == last.keys() == set(range(6))
    assert len({p.node for p in first.values()}) == 2 and len({p.node for p in last.values()}) == 1
    for placement in [*first.values(), *last.values()]:
        assert placement.gpus in {str(n) for n in range(GPUS)} and placement.device == "cpu"
    assert {f["reason"] for f in run["faults"]} == {"failed: its Ray worker died"}
    assert len(run["faults"]) <= 3 and 3 in {f["round"] for f in run["faults"]}
    assert {f["action"] for f in run["faults"]} == {"retried"}
    for key in ("attacks", "rounds", "controls", "clients"):
        assert run[key] == whole[key]
