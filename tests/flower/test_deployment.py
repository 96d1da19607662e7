"""The app for real: docs/howto/deployment.md on a simulation, and on processes with TLS, keys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deployed import Deployment, block
from PIL import Image

from fedmia.simulate import main
from fedmia.testing.material import textures

SIMULATED = "--config smoke --clients 2"


def report(folder: Path) -> dict[str, Any]:
    """report.json but for its timing."""
    report_json: dict[str, Any] = json.loads((folder / "report.json").read_text())
    del report_json["timing"]
    return report_json


def inline(arguments: str, folder: Path) -> dict[str, Any]:
    assert main([*arguments.split(), "--quiet", "--out", str(folder)]) == 0
    return report(folder)


@pytest.mark.slow(seconds=50)
def test_simulation__reports_as_inline(tmp_path: Path) -> None:
    with Deployment(tmp_path) as flower:
        # As `flwr run` would start it; a process of ours, so that it is ours to end.
        server = "flower-superlink --insecure --simulation --host 127.0.0.1 --port "
        flower.start(server + flower.ports["http"], "superlink.log")
        flower.answers("http", "superlink.log")
        (run,) = [c for c in block("flwr run . local --stream\n").splitlines() if c]
        flower.run(run, "local")
        (out,) = tmp_path.glob("fedmia-run-*")
        with pytest.raises(AssertionError, match="finished:failed"):
            flower.run(run + """ -c "arguments='--rounds 0'" """, "local")
    assert report(out) == inline(SIMULATED, tmp_path / "inline")
    assert not [*(tmp_path / "home" / "fedmia").glob("*")]


@pytest.mark.slow(seconds=90)
@pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen")),
    reason="openssl and ssh-keygen make the deployment's certificates and keys",
)
def test_deployment__rehearses_as_inline_and_scores_private_images(tmp_path: Path) -> None:
    flags = "--config smoke --clients 2 --attacker none --attacks similarity"
    for number, images in enumerate(textures(96).numpy().reshape(4, 24, 3, 8, 8)):
        side = tmp_path / f"hospital{number // 2}" / ("members", "others")[number % 2]
        side.mkdir(parents=True)
        for name, image in enumerate(images):
            Image.fromarray(image.transpose(1, 2, 0)).save(side / f"{name}.png")
    with Deployment(tmp_path) as flower:
        flower.do(block("openssl req"))
        flower.start(block("flower-superlink --ssl"), "superlink.log")
        flower.answers("18000", "superlink.log")
        flower.do(block("root-certificates = "))
        flower.do(block("ssh-keygen"))
        nodes = [flower.start(block(f"folder='state{n}'\""), f"node{n}.log") for n in "01"]
        more = f""" -c "arguments='{flags}' out='{tmp_path / "out"}'" """
        flower.run(block("flwr run . deploy --stream\n").rstrip() + more, "deploy")
        files = [*tmp_path.glob("state*/*")]
        for node in nodes:
            flower.end(node)
        for n in "01":
            flower.start(block(f"folder='state{n}' "), f"node{n}.log")
        flower.run(block("private=true").replace("smoke", "smoke --rounds 1"), "deploy")
        (private,) = tmp_path.glob("fedmia-run-*")
    assert report(tmp_path / "out") == inline(flags, tmp_path / "inline")
    assert not files
    for client in range(2):
        found = report(private / f"client-{client:04d}")
        (attack,) = found["attacks"]
        assert (attack["n_members"], attack["n_nonmembers"]) == (16, 16)
