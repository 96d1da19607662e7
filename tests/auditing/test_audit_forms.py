"""Every form in which an encoder is brought, and machines where no federation is installed."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.auditing.brought import tiny
from tests.auditing.conftest import PIXELS, Audit, Sides
from tests.bank import Bank
from tests.encoders.conftest import save_program

ROOT = Path(__file__).resolve().parents[2]


def export(kind: str, folder: Path) -> Path:
    """The tiny encoder as a file, for any number of images of 8x8 pixels, and its weights."""
    module, path = tiny().eval(), folder / f"tiny.{kind}"
    torch.save(module.state_dict(), folder / "tiny.pth")
    save_program(module, path, size=PIXELS)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_export__is_a_black_box(kind: str, audit: Audit, tmp_path: Path) -> None:
    path = export(kind, tmp_path)
    done = audit(f"--encoder {path} --attacks similarity,lpla,internal,combined")
    assert done.code == 0 and done.names() == ["similarity", "lpla"]
    assert done.not_run.keys() == {"internal", "combined"}
    assert all("needs white_box access" in reason for reason in done.not_run.values())
    assert done.report["subject"] == f"the encoder {path.name}"
    assert done.report["split"]["access"] == "black_box"
    assert len(done.report["controls"]["untrained"]) == 2
    flags = f"--encoder tests.auditing.brought:tiny --checkpoint {tmp_path}/tiny.pth"
    aucs = [row["auc"] for row in audit(flags).report["attacks"]]
    assert [row["auc"] for row in done.report["attacks"]] == pytest.approx(aucs, abs=0.02)


@pytest.mark.slow
def test_precision__reaches_a_program(audit: Audit, tmp_path: Path) -> None:
    encoder, scores = export("pt2", tmp_path), []
    for precision in ("float32", "bfloat16"):
        done = audit(f"--encoder {encoder} --precision {precision}", tmp_path / precision)
        assert done.report["config"]["encoder"]["precision"] == precision
        with open(tmp_path / precision / "scores.csv", newline="") as file:
            scores.append(np.array([float(row["similarity"]) for row in csv.DictReader(file)]))
    assert 0 < np.abs(scores[0] - scores[1]).max() < 0.02


ABSENT = """
import runpy, sys
for name in ("flwr", "ray", "opacus", "onnx", "timm"): sys.modules[name] = None
for line in sys.argv[1].split(";"):
    sys.argv[1:] = line.split()
    try:
        runpy.run_module("fedmia.audit", run_name="__main__")
    except SystemExit as end:
        print("exit", end.code, file=sys.stderr)
    print("federated", sorted({"clients", "strategies"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.slow
def test_process__of_its_own_and_no_federation_installed(
    archives: Sides, bank: Bank, tmp_path: Path
) -> None:
    """An export, a run with explicit images, and a run with its own."""
    path, run = export("pt2", tmp_path), bank.run("central")
    more = "--attacks lpla --threads 1 --device cpu --quiet"
    lines = [
        f"--encoder {path} {archives.flags} {more}",
        f"--encoder {run} {archives.flags} --channels gray {more}",
        f"--encoder {run} {more} --out {tmp_path}/new/AUDIT",
        f"--encoder {run} {more} --seed x",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ABSENT, ";".join(lines)],
        cwd=ROOT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    printed = [n for n in done.stderr.splitlines() if n.startswith(("exit", "fed"))]
    assert printed[:4] == ["exit 0", "federated []"] * 2 and printed[4] == "exit 0"
    assert "exit 2" in printed and not any("flwr" in line for line in printed)
    assert (tmp_path / "new" / "AUDIT" / "report.json").is_file()


def test_script__is_the_command() -> None:
    script = ROOT / "tools" / "audit.sh"
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert script.read_text().endswith('exec "$venv/bin/python" -m fedmia.audit "$@"\n')
