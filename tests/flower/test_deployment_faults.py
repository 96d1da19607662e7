"""A deployment in which things break: a killed node, a slow line, a SuperLink that starts anew."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deployed import ROOT, Deployment, block
from slow_line import SlowLine

from fedmia.simulate import main

PATIENCE = 900.0  # seconds in which what is waited for comes, on a busy machine
DELAY = 0.1  # seconds by which all that a node sends and gets is late
FLAGS = (
    "--config smoke --clients 2 --rounds 2 --attacker none --attacks similarity --on-failure retry"
)


def wait(until: Callable[[], Any], what: str) -> Any:
    """What `until` returns, once it is true."""
    end = time.monotonic() + PATIENCE
    while not (value := until()):
        assert time.monotonic() < end, what
        time.sleep(0.2)
    return value


class Broken(Deployment):
    """A deployment whose parts are killed and started anew."""

    def begin(self, out: str) -> subprocess.Popen[bytes]:
        """Start a run; its log is `out`.log."""
        arguments = f""" -c "arguments='{FLAGS}' out='{self.folder / out}'" """
        command = block("flwr run . deploy --stream\n").rstrip() + arguments
        return self.start(f"bash -c {json.dumps(f'cd {ROOT} && {command}')}", f"{out}.log")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def statuses(self) -> list[str]:
        """Of all runs, the latest first."""
        listed = self.do("flwr list deploy --format json", timeout=PATIENCE)
        return [run["status"] for run in json.loads(listed)["runs"]]

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """As a power cut ends it, with all that it started."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.running.remove(process)


def read_report(folder: Path) -> dict[str, Any]:
    """report.json but for its timing, and for the failures that a note says, too."""
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return {key: value for key, value in report.items() if key not in ("timing", "faults", "notes")}


@pytest.mark.slow(seconds=130)
@pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen")),
    reason="openssl and ssh-keygen make the deployment's certificates and keys",
)
def test_deployment__a_killed_node_a_slow_line_and_a_superlink_that_starts_anew(
    tmp_path: Path,
) -> None:
    assert main([*FLAGS.split(), "--quiet", "--out", str(tmp_path / "inline")]) == 0
    with Broken(tmp_path) as flower, SlowLine(int(flower.ports["18000"]), DELAY) as line:
        link_command = block("flower-superlink --ssl").rstrip() + " --database link.db"
        flower.do(block("openssl req"), timeout=PATIENCE)
        link = flower.start(link_command, "link.log")
        flower.answers("18000", "link.log", PATIENCE)
        flower.do(block("root-certificates = "))
        flower.do(block("ssh-keygen"), timeout=PATIENCE)
        commands = [block(f"folder='state{n}'\"") for n in "01"]
        commands[1] = commands[1].replace("127.0.0.1:18000", f"127.0.0.1:{line.port}")
        nodes = [flower.start(c, f"node{n}.log") for n, c in enumerate(commands)]

        # A node is killed as soon as it has kept its state of round 1, and starts anew until
        # Flower, which misses it after a minute, takes it back.
        flower.begin("out")
        wait(lambda: [*tmp_path.glob("state1/**/round-000001.safetensors")], "round 1")
        flower.kill(nodes[1])
        nodes[1] = flower.start(commands[1], "node1.log")
        while "SuperNode ID" not in flower.log("node1"):
            if nodes[1].poll() is not None:
                flower.running.remove(nodes[1])
                nodes[1] = flower.start(commands[1], "node1.log")
            time.sleep(0.5)
        wait(lambda: "results are in" in flower.log("out"), "the end of a run whose node was lost")
        wait(lambda: flower.statuses()[0].startswith("finished"), "its status")
        assert flower.statuses()[0] == "finished:completed"
        assert read_report(tmp_path / "out") == read_report(tmp_path / "inline")
        assert not [*tmp_path.glob("state*/*")] and line.passed > 100_000

        # With its database a SuperLink knows its nodes again: they go on, the run does not.
        flower.begin("cut")
        wait(lambda: [*tmp_path.glob("state0/**/round-000001.safetensors")], "round 1")
        line.close()  # a line that takes a connection and then breaks it is another fault:
        flower.kill(link)  # Flower's node gives up after it, and is silent
        flower.start(link_command, "link-again.log")
        flower.answers("18000", "link-again.log", PATIENCE)
        line.open()
        wait(lambda: flower.statuses()[0] == "finished:failed", "the end of the run that was cut")
        assert not (tmp_path / "cut" / "report.json").exists()
        assert [node.poll() for node in nodes] == [None, None]
        flower.begin("again")
        wait(lambda: "results are in" in flower.log("again"), "the end of the run after it")
        assert read_report(tmp_path / "again") == read_report(tmp_path / "inline")
