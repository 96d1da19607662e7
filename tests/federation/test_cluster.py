"""Ray clusters that are there already, of several machines, and workers that die."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import ray
from flwr.app import Message

from fedmia.federation.cluster import RayGrid
from fedmia.federation.rounds import FederatedRun
from fedmia.report.figures import draw
from fedmia.simulate import main

pytestmark = pytest.mark.slow
RAY = Path(sys.executable).parent / "ray"
TINY = (
    "--clients 5 --rounds 4 --train.local_epochs 1 --model.width 4 --split.members 32 "
    "--split.nonmembers 60 --split.known 8 --split.test 20 --device cpu --federation.snapshots 1 "
    "--attacker active --attacks similarity,ascent --attack-rounds 2 --strategy fedema "
    "--attack.similarity.views 4 --attack.ascent.pairs 1 --quiet "
)
# Every client of it can be dropped.
OUTSIDE = TINY.replace("active --attacks similarity,ascent --attack-rounds 2", "none").replace(
    "--attack.ascent.pairs 1", "--attacks similarity"
)
Report = dict[str, Any]


def ran(flags: str, out: Path, tiny: str = TINY) -> Report:
    """The report of a run, less clocks and where it ran."""
    assert main([*shlex.split(tiny + flags), "--out", str(out)]) == 0
    report: Report = json.loads((out / "report.json").read_text())
    for name in ("backend", "ray_address"):
        del report["config"][name]
    del report["timing"]
    return report


@pytest.fixture(autouse=True)
def plain(no_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "draw_all", lambda scores, report: {})


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def apart(command: list[str], folder: Path) -> list[str]:
    """`command` where `folder` is another, empty one."""
    script = f"mount -t tmpfs none {shlex.quote(str(folder))} && exec {shlex.join(command)}"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of two nodes of one core each; the second sees nothing of the driver's files."""
    own = tmp_path / "driver"
    own.mkdir()
    if subprocess.run(apart(["true"], own), capture_output=True).returncode:
        pytest.skip("no mount namespace may be made here")
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    port = free_port()
    quiet = ["--num-cpus", "1", "--disable-usage-stats", "--block"]
    head = [str(RAY), "start", "--head", "--port", str(port), "--include-dashboard", "false"]
    temp = Path("/tmp") / f"ray-{os.getpid()}"  # sockets' paths have to be short
    head += ["--temp-dir", str(temp), *quiet]
    other = [str(RAY), "start", "--address", f"127.0.0.1:{port}", *quiet]
    started = []
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    for command in (head, apart(other, own)):
        started.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )  # fmt: skip
        time.sleep(6)
    yield f"127.0.0.1:{port}"
    for process in started:
        os.killpg(process.pid, signal.SIGTERM)
    for process in started:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    shutil.rmtree(temp, ignore_errors=True)


@pytest.mark.slow(seconds=30)
def test_two_machines__the_numbers_of_one_process(cluster: str, tmp_path: Path) -> None:
    """One of them sees neither the driver's temporary folder nor its run folder."""
    there = ran(f"--backend ray --ray-address {cluster}", tmp_path / "driver" / "RUN")
    assert there == ran("", tmp_path / "inline")


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("policy", ["retry", "drop"])
def test_worker_killed_in_a_round__the_policy_holds(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, pushed, killed = FederatedRun._note, RayGrid.push_messages, list[int]()

    def kill() -> None:
        time.sleep(1)
        os.kill(killed[0], signal.SIGKILL)

    def note(self: FederatedRun, branch: str, number: int, *rest: Any) -> None:
        noted(self, branch, number, *rest)
        if (branch, number) == ("main", 1):
            monkeypatch.setattr(RayGrid, "push_messages", push)

    def push(self: RayGrid, messages: Iterable[Message]) -> Iterable[str]:
        """Stop the worker that takes the first order of round 2: it dies with it in its hands."""
        monkeypatch.setattr(RayGrid, "push_messages", pushed)
        pid: Any = self._idle[-1].__ray_call__.remote(lambda worker: os.getpid())
        killed.append(ray.get(pid))
        os.kill(killed[0], signal.SIGSTOP)
        Thread(target=kill, daemon=True).start()
        return pushed(self, messages)

    monkeypatch.setattr(FederatedRun, "_note", note)
    tiny = TINY if policy == "retry" else OUTSIDE
    report = ran(f"--backend ray --on-failure {policy}", tmp_path / "RUN", tiny)
    assert killed and [f["action"] for f in report["faults"]] == [
        {"retry": "retried", "drop": "dropped"}[policy]
    ]
    assert "its Ray worker died" in report["faults"][0]["reason"]
    if policy == "retry":
        monkeypatch.setattr(FederatedRun, "_note", noted)
        whole = ran(f"--on-failure {policy}", tmp_path / "inline")
        for key in ("attacks", "rounds", "controls", "clients", "paired", "sets"):
            assert report[key] == whole[key]


def test_late_client__its_worker_is_killed(tmp_path: Path) -> None:
    """No step of the run is as quick as that."""
    flags = "--backend ray --on-failure retry --client-timeout 0.001"
    assert main([*shlex.split(TINY + flags), "--out", str(tmp_path / "RUN")]) == 1


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:9"])
def test_no_cluster__one_line_and_nothing_written(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """`auto` would join the Ray of a test at work beside this one, and end with it."""
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", cache(set))
    began = time.monotonic()
    flags = f"{TINY} --backend ray --ray-address {address}"
    assert main([*shlex.split(flags), "--out", str(tmp_path / "RUN")]) == 2
    err = capsys.readouterr().err
    assert f"--ray-address {address}: " in err and err.count("\n") == 1
    assert time.monotonic() - began < 20 and not (tmp_path / "RUN" / "report.json").exists()
