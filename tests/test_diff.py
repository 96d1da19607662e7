"""`fedmia diff`: each kind of difference between two runs is named, and equal runs have none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import fedmia

STORED = Path(__file__).parent / "stored" / "run"
AUC = "attacks", 0, "auc"


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of a stored run, whose numbers are read off report.json."""
    for name in ("a", "b"):
        shutil.copytree(STORED, tmp_path / name)
        (tmp_path / name / "table.parquet").unlink()
    return tmp_path / "a", tmp_path / "b"


def change(folder: Path) -> None:
    """Another seed, version, plugin and AUC."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["seed"] += 1
    config["_run"]["versions"]["torch"] = "1.0"
    config["_run"]["plugins"] = {"mine:Attack": "ab" * 32}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    report = json.loads((folder / "report.json").read_text())
    report["attacks"][0]["auc"] = 0.123
    (folder / "report.json").write_text(json.dumps(report))


def compared(runs: tuple[Path, Path]) -> dict[str, Any]:
    """What `--json` prints."""
    ran = fedmia(["diff", *map(str, runs), "--json"])
    assert (ran.code, ran.err) == (0, "")
    parts: dict[str, Any] = json.loads(ran.out)
    return parts


def test_equal_runs__differ_in_nothing(runs: tuple[Path, Path]) -> None:
    parts = compared(runs)
    assert not any(parts.values()) and {"settings", "numbers", "plugins"} <= parts.keys()


def test_each_difference__is_named_with_both_values(runs: tuple[Path, Path]) -> None:
    change(runs[1])
    name = json.loads((runs[0] / "report.json").read_text())["attacks"][0]["name"]
    parts, back = compared(runs), compared((runs[1], runs[0]))
    for part, ones in parts.items():
        swapped = [(one["after"], one["before"]) for one in back[part]]
        assert [(one["before"], one["after"]) for one in ones] == swapped
    assert [one["what"] for one in parts["settings"]] == ["seed"]
    assert [(one["what"], one["after"]) for one in parts["versions"]] == [("torch", "1.0")]
    assert parts["plugins"][0]["before"] == "(absent)"
    (number,) = parts["numbers"]
    assert f"attack {name}" in number["what"] and number["after"] == 0.123
    assert not parts["hardware"] and not parts["verdict"]
    assert "  seed: 0 -> 1\n" in fedmia(["diff", *map(str, runs)]).out
