"""Which client runs where on Ray: machines that claim GPUs which they do not have.

Ray places by what a machine claims, and tells each process its GPUs in CUDA_VISIBLE_DEVICES. torch
finds none of them, so that clients train on the CPU and the numbers can be compared.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from fedmia.federation import cluster
from fedmia.federation.cluster import ClientResources, RayGrid
from fedmia.federation.ledger import Ledger
from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.storage.snapshot import LocalTraining
from strategies.base import FinishedRound
from strategies.fedavg import FedAvg
from tests.small_runs import SIMILARITY, SMALL, ran
from tests.small_setup import small_setup

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


ROUNDS: list[dict[int, dict[str, float]]] = []  # metrics of each round's clients
ACTS: list[Callable[[], object]] = []  # as each round ends


@dataclass
class Placed(FedAvg):
    """FedAvg whose clients say where they train, once as many processes as there are GPUs do."""

    folder: str = option("", "with a file for each process at work")

    def begin(self, local: LocalTraining) -> State:
        folder, end = Path(self.folder), time.monotonic() + PATIENCE
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < 2 * GPUS and time.monotonic() < end:
            time.sleep(0.05)
        return super().begin(local)

    def finish(self, local: LocalTraining, trained: State, sent: State) -> dict[str, float]:
        import ray

        return {
            "pid": os.getpid(),
            "node": int(ray.get_runtime_context().get_node_id()[:12], 16),
            "gpu": int(os.environ["CUDA_VISIBLE_DEVICES"]),
            "on gpu": int(any(tensor.is_cuda for tensor in trained.values())),
        }

    def rounds(self, *rest: Any) -> Iterator[FinishedRound]:
        for done in super().rounds(*rest):
            ROUNDS.append(done.metrics)
            if ACTS:
                ACTS.pop(0)()
            yield done


@pytest.fixture
def place(machines: Any, tmp_path: Path) -> Iterator[Callable[..., list[tuple[str, str]]]]:
    """`place(share, clients)`: how many workers each GPU has, and the GPU, when all are ready."""
    import ray

    cluster.connect(machines.address)
    np.save(tmp_path / "images.npy", np.zeros((1, 3, 8, 8), np.uint8))
    setup = small_setup(tmp_path / "images.npy", [np.arange(1)])

    def place(gpus: float, clients: int) -> list[tuple[str, str]]:
        assert ray.cluster_resources()["GPU"] == 2 * GPUS
        share, said = ClientResources(0.01, gpus, "cpu"), list[str]()
        end = time.monotonic() + PATIENCE
        with closing(RayGrid(setup, clients, share, Ledger(), None, said.append)) as grid:
            while not said:
                assert time.monotonic() < end  # who does not fit would wait for ever
                grid.pull_messages(["no order"])
        while ray.available_resources().get("GPU", 0) < 2 * GPUS and time.monotonic() < end:
            time.sleep(0.1)
        return re.findall(r"(\d+) on GPU (\d+) of", said[0])

    yield place
    cluster.disconnect()


def test_workers__that_share_gpus(place: Callable[..., list[tuple[str, str]]]) -> None:
    """Four quarters lie on one device; of 0.6 one fits on each of the two machines' GPUs: none has
    parts of two."""
    ((count, _),) = place(0.25, 4)
    assert count == "4" and place(0.6, 12) == [("2", str(n)) for n in range(GPUS)]


def test_run__loses_a_machine_and_then_a_worker_and_reports_as_inline(
    machines: Any, tmp_path: Path
) -> None:
    """Clients of the second machine go on on the first; each process has a GPU of its own."""

    def lose_machine() -> None:
        machines.remove_node(next(iter(machines.worker_nodes)), allow_graceful=False)

    def lose_worker() -> None:
        """One that is idle: it is missed when it gets its next order."""
        os.kill(int(ROUNDS[-1][0]["pid"]), signal.SIGKILL)

    flags = f"{SMALL}{SIMILARITY} --clients 6 --rounds 3 --attacker none --on-failure retry "
    whole = ran(flags, tmp_path / "inline")
    (folder := tmp_path / "processes").mkdir()
    ROUNDS[:], ACTS[:] = [], [lose_machine, lose_worker]
    flags += f"--backend ray --ray-address {machines.address} --gpus-per-client 1 "
    flags += f"--strategy {__name__}:Placed --strategy.folder {folder} "
    run = ran(f"{flags} --cpus-per-client 0.1", tmp_path / "ray")
    first, second, last = ROUNDS
    assert first.keys() == second.keys() == last.keys() == set(range(6))
    places = {tuple(one[name] for name in ("node", "gpu", "pid")) for one in first.values()}
    assert len(places) == len({place[:2] for place in places}) == 2 * GPUS
    assert Counter(gpu for _, gpu, _ in places) == {n: 2 for n in range(GPUS)}
    assert len({one["node"] for one in last.values()}) == 1
    assert not any(one["on gpu"] for one in [*first.values(), *last.values()])
    assert {f["reason"] for f in run["faults"]} == {"failed: its Ray worker died"}
    assert len(run["faults"]) <= 3 and 3 in {f["round"] for f in run["faults"]}
    assert {f["action"] for f in run["faults"]} == {"retried"}
    for key in ("attacks", "rounds", "controls", "clients"):
        assert run[key] == whole[key]
