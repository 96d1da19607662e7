"""research/results/made_by.yaml says what made the results whose script is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "research" / "results"
MADE_BY = yaml.safe_load((RESULTS / "made_by.yaml").read_text(encoding="utf-8"))
SCRIPTS = {p.stem for folder in ("research", "tests") for p in (ROOT / folder).rglob("*.py")}
ELSEWHERE = {
    "encoders-v1": "tools/board.py",
    "encoders-v2": "tools/board.py",
    "protocols": "research/papers/protocols/command.py",
}


@pytest.mark.parametrize("file", MADE_BY)
def test_made_by__names_a_result_its_commit_and_a_script_that_is_gone(file: str) -> None:
    row = MADE_BY[file]
    assert (RESULTS / file).is_file() and row.keys() == {"commit", "command"}
    assert re.fullmatch("[0-9a-f]{12}|[0-9a-f]{40}", row["commit"])
    scripts = re.findall(r"python (?:benchmarks|research/measurements)/(\w+\.py)", row["command"])
    assert scripts
    assert not [s for s in scripts if (ROOT / "research" / "measurements" / s).exists()]


@pytest.mark.parametrize("file", sorted(p.name for p in RESULTS.glob("*.json")))
def test_made_by__has_each_result_without_a_script_of_its_name(file: str) -> None:
    """Results in folders are those of studies, of papers, or stand in the list."""
    stem = file.removesuffix(".json")
    maker = ELSEWHERE.get(stem)
    assert file in MADE_BY or stem in SCRIPTS or (maker and (ROOT / maker).is_file())
