"""`fedmia diff`: each kind of difference between two runs is named, and equal runs have none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from fedmia import diff
from fedmia.storage.outfolder import hash_plugins

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


def test_equal_runs__differ_in_nothing(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff.main([*map(str, runs), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert not any(parts.values()) and {"settings", "numbers", "plugins"} <= parts.keys()


def test_each_difference__is_named_with_both_values(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    change(runs[1])
    name = json.loads((runs[0] / "report.json").read_text())["attacks"][0]["name"]
    assert diff.main([*map(str, runs), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert [one["what"] for one in parts["settings"]] == ["seed"]
    assert [(one["what"], one["after"]) for one in parts["versions"]] == [("torch", "1.0")]
    assert parts["plugins"][0]["before"] == diff.ABSENT
    (number,) = parts["numbers"]
    assert f"attack {name}" in number["what"] and number["after"] == 0.123
    assert not parts["hardware"] and not parts["verdict"]
    assert diff.main([*map(str, runs)]) == 0
    assert "  seed: " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["."], ["nowhere", "."], [".", ".", "."]])
def test_bad_input__is_one_line_and_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert diff.main(arguments) == 2
    printed = capsys.readouterr()
    assert not printed.out and printed.err.count("\n") == 1


def test_plugins_from_outside__are_known_by_the_hash_of_their_file() -> None:
    name = "tests.auditing.brought:tiny"
    __import__("tests.auditing.brought")
    hashes = hash_plugins({"strategy": name, "attacks": ["similarity"], "x": "python:Mine@1234"})
    assert [*hashes] == [name] and len(hashes[name]) == 64
