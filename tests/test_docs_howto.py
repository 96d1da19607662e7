"""The code on the how-to pages, on the page on Python and in the README runs as it stands there."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
HOWTO = ROOT / "docs" / "howto"


def blocks(name: str) -> list[str]:
    """The blocks of Python of a page."""
    text = (HOWTO / name).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_attack_of_a_client__passes_its_check_and_reads_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedmia.testing.attack_case import AttackCase

    attack, check, *_ = blocks("write_an_attack.md")
    (tmp_path / "drift_attack.py").write_text(attack)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "drift_attack", raising=False)
    exec(compile(check, "write_an_attack.md", "exec"), {})
    drift = importlib.import_module("drift_attack").Drift
    view = AttackCase(drift).view()
    assert view.threat.vantage == "client" and len(view.received) > 0


@pytest.mark.parametrize(
    ("code", "status"),
    [("leaks", 1), ("leaks-uncontrolled", 3), ("not-established", 0), ("shift", 3)],
)
def test_gate__exits_by_the_verdict(
    code: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fedmia

    class Opened:
        verdict_code = code

    monkeypatch.setattr(fedmia, "open_run", lambda folder: Opened(), raising=False)
    monkeypatch.setattr(sys, "argv", ["gate.py", "AUDIT"])
    with pytest.raises(SystemExit) as ended:
        exec(compile(blocks("ci_gate.md")[0], "gate.py", "exec"), {})
    assert ended.value.code == status


@pytest.mark.slow(seconds=90)
def test_own_study__compares_an_own_attack(tmp_path: Path) -> None:
    import fedmia

    script = [sys.executable, str(HOWTO / "own_study.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    comparison = fedmia.open_study(tmp_path / "STUDY").compare("Norm", "similarity")
    assert list(comparison["models"]) == [3, 3]  # a point each
    assert (tmp_path / "comparison.png").stat().st_size > 1000


@pytest.mark.slow(seconds=60)
def test_python__the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(blocks("../start/python.md")))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "did you mean 'clients'?" in done.stdout
    assert "python:Norm@" not in done.stderr and "Norm on the released encoder" in done.stderr
    assert all((tmp_path / name / "report.html").is_file() for name in ("RUN", "OWN", "AUDIT"))


@pytest.mark.slow(seconds=30)
def test_readme__python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, but for the preset and the attacks of the audit, which take minutes."""
    import numpy as np
    from torch import nn

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = text.split("\n## From Python\n", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    small = code.replace("run_simulation(", 'run_simulation("smoke", ')
    small = small.replace("others)", 'others, attacks="similarity")')
    assert small.count("smoke") == small.count('attacks="similarity"') == 1
    pixels = np.random.default_rng(0).integers(0, 256, (120, 1, 8, 8), dtype=np.uint8)
    names: dict[str, Any] = {
        "encoder": nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()),
        "members": pixels[:60],
        "others": pixels[60:],
    }
    monkeypatch.chdir(tmp_path)
    exec(compile(small, "README.md", "exec"), names)
    assert list(names["audit"].attacks.index) == ["similarity"]


def test_own_study__is_short() -> None:
    lines = (HOWTO / "own_study.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 25
