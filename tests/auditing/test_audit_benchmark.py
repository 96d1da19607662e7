"""The benchmark of the exports, small: one network in three forms is scored alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow(seconds=25)
def test_exports__agree_and_hold_half(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    flags = "--model resnet18 --size 32 --images 16 --threads 1 --attacks lpla,similarity,internal"
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "audit_exports.py", *flags.split(),
         "--work", tmp_path / "work", "--out", tmp_path / "found.json"],
        cwd=ROOT, capture_output=True, text=True, timeout=500, env={
            "PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    content = json.loads((tmp_path / "found.json").read_text())
    assert content["holds_half"] and content["model"] == "resnet18" and content["versions"]["torch"]
    forms = content["forms"]
    aucs = {f: {r["name"]: r["auc"] for r in forms[f]["attacks"]} for f in forms}
    assert aucs["torchvision"].keys() == {"lpla", "similarity", "internal"}
    for form in ("pt2", "onnx"):
        assert forms[form]["not_run"].keys() == {"internal"}
        for name, auc in aucs[form].items():
            assert auc == pytest.approx(aucs["torchvision"][name], abs=0.02)
