"""The app for real: docs/deployment.md on a simulation, and on processes with TLS and keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deployed import ROOT, Deployment, block

from fedmia.simulate import main

SIMULATED = "--config smoke --clients 2"


def report(folder: Path) -> dict[str, Any]:
    """report.json but for its timing."""
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    del found["timing"]
    return found


def inline(arguments: str, folder: Path) -> dict[str, Any]:
    assert main([*arguments.split(), "--quiet", "--out", str(folder)]) == 0
    return report(folder)


@pytest.mark.slow
def test_simulation__reports_as_inline(tmp_path: Path) -> None:
    with Deployment(tmp_path) as flower:
        # As `flwr run` would start it; a process of ours, so that it is ours to end.
        server = "flower-superlink --insecure --simulation --host 127.0.0.1 --port "
        flower.start(server + flower.ports["http"], "superlink.log")
        flower.answers("http", "superlink.log")
        (run,) = [c for c in block("flwr run . local --stream\n").splitlines() if c]
        flower.do(run, cwd=ROOT, timeout=400)
        assert flower.status("local") == "finished:completed"
        (out,) = tmp_path.glob("fedmia-run-*")
    assert report(out) == inline(SIMULATED, tmp_path / "inline")
    assert not [*(tmp_path / "home" / "fedmia").glob("*")]


@pytest.mark.slow
def test_rehearsal__on_processes_with_keys_reports_as_inline(tmp_path: Path) -> None:
    asked = "--config smoke --clients 2 --attacker none --defense dpsgd"
    with Deployment(tmp_path) as flower:
        flower.do(block("openssl req"))
        flower.start(block("flower-superlink --ssl"), "superlink.log")
        flower.answers("18000", "superlink.log")
        flower.do(block("root-certificates = "))
        flower.do(block("ssh-keygen"))
        for node in "01":
            flower.start(block(f"--auth-supernode-private-key node{node}"), f"node{node}.log")
        more = f""" -c "arguments='{asked}' out='{tmp_path / "out"}'" """
        shown = flower.do(block("flwr run . deploy").rstrip() + more, cwd=ROOT, timeout=500)
        assert flower.status("deploy") == "finished:completed", shown[-3000:]
        kept = [*tmp_path.glob("state*/*")]
        bad = """ -c "arguments='--config smoke --clients 2 --rounds 0'" """
        flower.do(block("flwr run . deploy").rstrip() + bad, cwd=ROOT, timeout=100)
        assert flower.status("deploy") == "finished:failed"
    assert report(tmp_path / "out") == inline(asked, tmp_path / "inline")
    assert not kept
