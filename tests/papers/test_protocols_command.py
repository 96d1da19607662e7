"""`python -m papers protocols` as its users call it: small, interrupted, gone on with, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedmia.settings.yamlfile import dump, load
from papers.__main__ import main
from papers.protocols import command

Capture = pytest.CaptureFixture[str]
ROWS = [{"attack": "lpla", "switches": ["test file"]},
        {"attack": "partcrop", "switches": ["epoch"], "kinds": ["placebo"]}]  # fmt: skip


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plan with two rows, in a folder for results."""
    plan = {**load(command.PLAN), "rows": ROWS}
    path = tmp_path / "plan.yaml"
    path.write_text(dump(plan), encoding="utf-8")
    monkeypatch.setattr(command, "PLAN", path)
    return tmp_path


def results(folder: Path) -> dict[str, Any]:
    stored = json.loads((folder / command.RESULTS).read_text(encoding="utf-8"))
    for one in stored["encoders"]:
        del one["seconds"]
    del stored["seconds"]
    return dict(stored)


def test_interrupted_run__ends_as_a_whole_one(small: Path, capsys: Capture) -> None:
    whole, cut = small / "whole", small / "cut"
    assert main(["protocols", "--out", str(whole), "--quiet"]) == 0
    assert main(["protocols", "--out", str(cut), "--minutes", "1e-9", "--quiet"]) == 130
    assert not (cut / command.RESULTS).exists()
    assert main(["protocols", "--out", str(cut), "--json"]) == 0
    stored = results(cut)
    assert stored == results(whole)
    printed = json.loads(capsys.readouterr().out)
    assert printed["rows"] == stored["rows"] and printed["n"] == {"moco": 2}
    seconds = {path: path.stat().st_mtime_ns for path in (cut / "encoders").glob("*.json")}
    assert main(["protocols", "--out", str(cut)]) == 0  # nothing is measured again
    assert {path: path.stat().st_mtime_ns for path in seconds} == seconds
    assert (cut / command.TABLE).read_text(encoding="utf-8") in capsys.readouterr().out


def refused(arguments: list[str], capsys: Capture) -> str:
    assert main(["protocols", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "out (--out) is missing"),
        (["--scale", "smal"], "did you mean 'small'"),
        (["--scale", "small", "--out", "there"], "data_dir (--data-dir) is missing"),
        (["--scale", "small", "--data-dir", "nowhere", "--out", "there"], "no such folder"),
        (["--encoders", "1", "--out", "there"], "must be >= 2"),
        (["--encoder", "2", "--out", "there"], "did you mean '--encoders'"),
    ],
)
def test_input__is_refused_in_one_line(arguments: list[str], said: str, capsys: Capture) -> None:
    assert said in refused(arguments, capsys)
    assert not Path("there").exists()


def test_folder__of_something_else_is_refused(small: Path, capsys: Capture) -> None:
    assert "holds 'plan.yaml'" in refused(["--out", str(small)], capsys)
    missing = ["--scale", "small", "--data-dir", str(small), "--out", str(small / "out")]
    assert "has no cifar10-train.parquet" in refused(missing, capsys)
    assert main(["protocols", "--out", str(small / "out"), "--minutes", "1e-9"]) == 130
    (small / "plan.yaml").write_text(
        dump({**load(small / "plan.yaml"), "effect": 0.5}), encoding="utf-8"
    )
    capsys.readouterr()
    assert "already holds other protocols" in refused(["--out", str(small / "out")], capsys)
