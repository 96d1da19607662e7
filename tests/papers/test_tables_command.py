"""`python -m papers TABLE`: a table from nothing, and again from what is there; every entry."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from papers.__main__ import main
from papers.listing import list_page


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.strip() == list_page().strip()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("nosuch --out x", "unknown table 'nosuch'"),
        ("encodermi-table-22 --out x", "did you mean"),
        ("encodermi-table-1", "out FOLDER is missing"),
        ("encodermi-table-1 --scale big --out x", "scale"),
        ("encodermi-table-1 --data-dir /nosuch --out x", "no such folder"),
    ],
)
def test_bad_input__one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not list(tmp_path.iterdir())


# Together they ask for every kind of job, method, network and attack, and for every kind of number
# and figure that an entry has.
COVERING = (
    "encodermi-table-1,encodermi-fig-1a,encodermi-fig-3,encodermi-fig-5,federated-table-2,"
    "federated-table-3,federated-fig-10,federated-fig-13,logistic-table-1,logistic-fig-1,"
    "logistic-fig-2,lpla-table-2,lpla-table-3-tpr,lpla-fig-4,partcrop-table-6,partcrop-table-8,"
    "partcrop-table-10,partcrop-fig-4"
)


@pytest.mark.slow
def test_entries__at_smoke(tmp_path: Path) -> None:
    """And the same command again makes no job twice and the same tables."""
    command = [COVERING, "--scale", "smoke", "--out", str(tmp_path / "out"), "--quiet"]
    assert main(command) == 0
    tables = {p.name: p.read_bytes() for p in (tmp_path / "out" / "tables").iterdir()}
    texts = {Path(name).stem: text.decode() for name, text in tables.items() if ".csv" in name}
    assert texts.keys() == {*COVERING.split(",")}
    rows = [row for text in texts.values() for row in csv.DictReader(text.splitlines())]
    assert not [row for row in rows if row["state"] not in ("finished", "not run")]
    assert sum(row["ours"] != "" for row in rows) > 30
    assert main(command) == 0
    assert tables == {p.name: p.read_bytes() for p in (tmp_path / "out" / "tables").iterdir()}


@pytest.mark.slow
def test_tables__made_again_from_nothing_have_equal_numbers(tmp_path: Path) -> None:
    """Of two papers, in two folders: nothing of the first is there for the second."""
    made = []
    for name in ("one", "two"):
        out = tmp_path / name
        tables = "lpla-fig-9,logistic-fig-2"
        assert main([tables, "--scale", "smoke", "--out", str(out), "--quiet"]) == 0
        contents = [json.loads(p.read_text()) for p in sorted((out / "tables").glob("*.json"))]
        made.append(
            [
                {key: value for key, value in cell.items() if key != "seconds"}
                for content in contents
                for cell in content["cells"]
            ]
        )
    assert made[0] == made[1]
    assert sum(cell["ours"] is not None for cell in made[0]) >= 4
