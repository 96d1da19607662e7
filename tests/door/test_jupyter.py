"""The Python door in a real Jupyter kernel: classes of cells, the page of a run, interrupt."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.cli.test_bad_input import OWN_ATTACK

OWN = f"""
import fedmia
{OWN_ATTACK}
tiny = dict(config="smoke", clients=2, rounds=1, attacker="none", attacks=["similarity", Norm])
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel in an empty folder."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def answers(
    client: BlockingKernelClient, message: str, until: str = "", seconds: float = 120
) -> list[dict[str, Any]]:
    """What the kernel publishes for a cell until it shows a text like this, or is idle again."""
    published: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        one = client.get_iopub_msg(timeout=seconds)
        if one["parent_header"].get("msg_id") != message:
            continue
        content = one["content"] | {"kind": one["msg_type"]}
        if one["msg_type"] == "status" and content["execution_state"] == "idle":
            return published
        published.append(content)
        if until and re.search(until, str(content)):
            return published
    raise AssertionError("the cell did not end")


def run_cell(client: BlockingKernelClient, code: str) -> list[dict[str, Any]]:
    """Run a cell; what it published, an error of it raised."""
    published = answers(client, client.execute(code))
    errors = [a for a in published if a["kind"] == "error"]
    assert not errors, "\n".join(errors[0]["traceback"])
    return published


@pytest.mark.slow(seconds=45)
def test_a_class_of_a_cell_runs_shows_itself_and_can_be_interrupted(
    kernel: tuple[KernelManager, BlockingKernelClient],
) -> None:
    manager, client = kernel
    run_cell(client, OWN)
    shown = run_cell(client, "run = fedmia.run_simulation(**tiny, out='RUN')\nrun")
    (result,) = (a["data"] for a in shown if a["kind"] == "execute_result")
    assert "Norm" in result["text/html"] and "<script" not in result["text/html"]
    name = run_cell(client, "print(run.settings.attacks[1])")[-1]["text"]
    assert name.startswith("python:Norm@")
    run_cell(client, OWN)  # the cell again: the same source, the same name
    run_cell(client, "fedmia.run_simulation(resume='RUN', attacks=['similarity', Norm])")

    long = "run = fedmia.run_simulation(**{**tiny, 'rounds': 3000})"
    message = client.execute(long)
    answers(client, message, until=r"rounds [1-9]\d*/3000")
    manager.interrupt_kernel()
    published = answers(client, message)
    assert not [a for a in published if a["kind"] == "error"]
    finished = int(run_cell(client, "print(run.records.interrupted)")[-1]["text"])
    assert 0 < finished < 3000
