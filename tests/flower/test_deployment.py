"""The app for real: docs/howto/deployment.md on a simulation, and on processes with TLS, keys and
faults: a SuperLink that starts anew, a node that is killed."""

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
from PIL import Image

from fedmia.testing.material import textures
from tests.small_runs import Report, ran, read

PATIENCE = 900.0  # seconds in which what is waited for comes, on a busy machine
FLAGS = (
    "--config smoke --clients 2 --rounds 2 --attacker none --attacks similarity --on-failure retry"
)


@pytest.mark.slow(seconds=50)
def test_simulation__reports_as_inline(tmp_path: Path) -> None:
    with Deployment(tmp_path) as flower:
        flower.simulate()
        (run,) = [c for c in block("flwr run . local --stream\n").splitlines() if c]
        flower.run(run, "local")
        (out,) = tmp_path.glob("fedmia-run-*")
    assert read(out) == ran("--config smoke --clients 2 --quiet", tmp_path / "inline")
    assert not [*(tmp_path / "home" / "fedmia").glob("*")]


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

    def ends(self, status: str) -> None:
        """Wait for the end of the latest run."""

        def ended() -> Any:
            listed = self.do("flwr list deploy --format json", timeout=PATIENCE)
            last: str = json.loads(listed)["runs"][0]["status"]
            return last.startswith("finished") and last

        assert wait(ended, "the end of the run") == f"finished:{status}"

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """As a power cut ends it, with all that it started."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.running.remove(process)


def draw_hospitals(folder: Path) -> None:
    """24 images on each side of each of two."""
    for number, images in enumerate(textures(96).numpy().reshape(4, 24, 3, 8, 8)):
        side = folder / f"hospital{number // 2}" / ("members", "others")[number % 2]
        side.mkdir(parents=True)
        for name, image in enumerate(images):
            Image.fromarray(image.transpose(1, 2, 0)).save(side / f"{name}.png")


def but_for_faults(report: Report) -> Report:
    """A note says the failures, too."""
    return {**report, "faults": None, "notes": None}


@pytest.mark.slow(seconds=130)
@pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen")),
    reason="openssl and ssh-keygen make the deployment's certificates and keys",
)
def test_deployment__through_faults_reports_as_inline_and_scores_private_images(
    tmp_path: Path,
) -> None:
    draw_hospitals(tmp_path)
    inline = ran(f"{FLAGS} --quiet", tmp_path / "inline")
    with Broken(tmp_path) as flower:
        link_command = block("flower-superlink --ssl").rstrip() + " --database link.db"
        flower.do(block("openssl req"), timeout=PATIENCE)
        link = flower.start(link_command, "link.log")
        flower.answers("18000", "link.log", PATIENCE)
        flower.do(block("root-certificates = "))
        flower.do(block("ssh-keygen"), timeout=PATIENCE)
        commands = [block(f"folder='state{n}'\"") for n in "01"]
        nodes = [flower.start(c, f"node{n}.log") for n, c in enumerate(commands)]

        # With its database a SuperLink knows its nodes again: they go on, the run does not.
        flower.begin("cut")
        wait(lambda: [*tmp_path.glob("state0/**/main-0000.safetensors")], "round 1")
        flower.kill(link)
        flower.start(link_command, "link-again.log")
        flower.answers("18000", "link-again.log", PATIENCE)
        flower.ends("failed")
        assert not (tmp_path / "cut" / "report.json").exists()
        assert [node.poll() for node in nodes] == [None, None]
        shutil.rmtree(tmp_path / "state1")

        # A node is killed as soon as it has kept its state of round 1, and starts anew until
        # Flower, which has to miss it first, takes it back.
        flower.begin("out")
        wait(lambda: [*tmp_path.glob("state1/**/main-0001.safetensors")], "round 1")
        flower.kill(nodes[1])
        nodes[1] = flower.start(commands[1], "node1.log")
        while "SuperNode ID" not in flower.log("node1"):
            if nodes[1].poll() is not None:
                flower.running.remove(nodes[1])
                nodes[1] = flower.start(commands[1], "node1.log")
            time.sleep(0.5)
        wait(lambda: "results are in" in flower.log("out"), "the end of a run whose node was lost")
        flower.ends("completed")
        assert but_for_faults(read(tmp_path / "out")) == but_for_faults(inline)
        assert not [*tmp_path.glob("state1/*")]

        for node in nodes:
            flower.end(node)
        for n in "01":
            flower.start(block(f"folder='state{n}' "), f"node{n}.log")
        flower.run(block("private=true").replace("smoke", "smoke --rounds 1"), "deploy")
        (private,) = tmp_path.glob("fedmia-run-*")
    for client in range(2):
        (attack,) = read(private / f"client-{client:04d}")["attacks"]
        assert (attack["n_members"], attack["n_nonmembers"]) == (16, 16)
