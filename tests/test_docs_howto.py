"""The code on the how-to pages runs as it stands there."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(("code", "status"), [("leaks", 1), ("not-established", 0), ("shift", 3)])
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


def test_own_study__is_short() -> None:
    lines = (HOWTO / "own_study.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 25
