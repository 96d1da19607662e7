"""Ray clusters that are there already, of two machines that share no folder."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from fedmia.simulate import main
from tests.small_runs import BRANCHES, ran

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_ray")]
RAY = Path(sys.executable).parent / "ray"


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
    mounts = apart(["true"], own)
    if not shutil.which(mounts[0]) or subprocess.run(mounts, capture_output=True).returncode:
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
    flags = BRANCHES.replace("scaffold", "fedema")
    there = ran(f"{flags} --backend ray --ray-address {cluster}", tmp_path / "driver" / "RUN")
    here = ran(flags, tmp_path / "inline")
    assert {**there, "config": None} == {**here, "config": None}
    assert there["config"]["machine"]["ray_address"] == cluster


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:9"])
def test_no_cluster__one_line_and_nothing_written(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """`auto` would join the Ray of a test at work beside this one, and end with it."""
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", cache(set))
    began = time.monotonic()
    flags = f"{BRANCHES} --backend ray --ray-address {address}"
    assert main([*shlex.split(flags), "--out", str(tmp_path / "RUN")]) == 2
    err = capsys.readouterr().err
    assert f"(--ray-address) {address}: " in err and err.count("\n") == 1
    assert time.monotonic() - began < 20 and not (tmp_path / "RUN" / "report.json").exists()
