"""A hospital's folder as examples/hospital.py makes it: one refusal that says all, one command to a
report, and Python with equal numbers."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

import fedmia
from tests.commands import fedmia as command

SCRIPT = Path(__file__).parents[2] / "examples" / "hospital.py"


@pytest.mark.slow
def test_hospital__one_command_to_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, SCRIPT, "HOSPITAL"], check=True, timeout=600)
    names = [path.name for path in Path("HOSPITAL/bilder").iterdir()]
    assert len(names) == 1200
    assert any(name != unicodedata.normalize("NFC", name) for name in names)
    line = "--encoder HOSPITAL/encoder.pt2 --members list:HOSPITAL/Aufnahmen.csv --out AUDIT"
    flags = "--attacks similarity --attack.similarity.views 3 --limit 120 --device cpu --threads 1"
    refused = command(f"audit {line} {flags}")
    assert refused.code == 2 and not Path("AUDIT").exists()
    error, announced, way = refused.err.splitlines()
    assert "pixel_range" in error and announced.endswith("this line would do:")
    arguments = shlex.split(way)
    assert arguments[-2:] == ["--pixel-range", "0,4095"]
    assert command(["audit", *arguments[arguments.index("--encoder") :]]).code == 0
    report = json.loads(Path("AUDIT/report.json").read_text())
    (row,) = report["attacks"]
    assert row["n_member_subjects"] and report["config"]["groups"] == "Patient"
    assert any("Whole subjects are drawn" in note for note in report["notes"])
    run = fedmia.audit_encoder(
        "HOSPITAL/encoder.pt2", Path("HOSPITAL/Aufnahmen.csv"), attacks="similarity",
        attack={"similarity": {"views": 3}}, limit=120, threads=1, pixel_range=(0, 4095),
        quiet=True,
    )  # fmt: skip
    again = run.records.attacks[0]
    assert [again.auc, again.low, again.high] == [row["auc"], row["low"], row["high"]]
