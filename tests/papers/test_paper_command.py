"""`python -m papers run` as its users call it: wrong input in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedmia.cli.command import parse
from papers.__main__ import main
from papers.commands import RUN

STORED = Path(__file__).resolve().parents[1] / "stored" / "run"

Capture = pytest.CaptureFixture[str]


def refused(arguments: list[str], capsys: Capture) -> str:
    assert main(["run", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_run__with_and_without_its_flag() -> None:
    assert parse(RUN, ["RUN", "--out", "there"]).settings == parse(RUN, ["--run=RUN"]).settings
    assert parse(RUN, ["a=b"]).settings.run == "a=b"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "run (--run) is missing: the folder of a finished run"),
        (["one", "two"], "unexpected argument 'two'"),
        (["nowhere"], "folder 'nowhere' is no run: no config.yaml in it"),
        (["one", "--device", "gpu"], "device"),
    ],
)
def test_input__is_refused_in_one_line(arguments: list[str], said: str, capsys: Capture) -> None:
    assert said in refused(arguments, capsys)


def test_run__whose_data_are_gone(tmp_path: Path, capsys: Capture) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("data: parquet:gone.parquet\n", encoding="utf-8")
    assert "holds no finished run: no report.json" in refused([str(tmp_path)], capsys)
    shutil.copy(STORED / "report.json", tmp_path)
    said = refused([str(tmp_path)], capsys)
    assert "gone.parquet" in said and not (tmp_path / "paper").exists()
    (tmp_path / "report.json").write_text("[]", encoding="utf-8")
    assert "report.json of run" in refused([str(tmp_path)], capsys)
