"""What a command prints goes out in any encoding, whoever reads it; the exit code is the work's."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from fedmia.cli.main import main

STORED = Path(__file__).resolve().parents[1] / "stored" / "run"
TEXT = "naïve ≤ ± 画像 \U0001f600"


def code_of(*words: str) -> object:
    """The exit code of `fedmia WORDS`, which prints to this process's streams."""
    try:
        return main(words)
    except SystemExit as end:
        return end.code


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two runs, of which one has a setting that few encodings hold."""
    for name in ("a", "b"):
        shutil.copytree(STORED, tmp_path / name)
    config = yaml.safe_load((tmp_path / "b" / "config.yaml").read_text())
    config["data"]["dir"] = TEXT
    (tmp_path / "b" / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["fedmia"])
    return str(tmp_path / "a"), str(tmp_path / "b")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252"])
def test_any_text__goes_out_in_any_encoding_and_json_stays_json(
    encoding: str, runs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    assert code_of("diff", *runs, "--json") == 0
    out.flush()
    (found,) = json.loads(out.buffer.getvalue().decode(encoding))["settings"]  # type: ignore[attr-defined]
    assert found["after"] == TEXT and sys.stdout is out and out.errors == "strict"


def test_page__of_a_terminal_that_knows_ascii_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert code_of("list", "attack") == 0
    out.flush()
    assert b"Br\\u00e4nnvall" in out.buffer.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_command__whose_reader_has_left_keeps_its_exit_code(
    stream: str, runs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    pipe = os.fdopen(write, "w", buffering=1)
    monkeypatch.setattr(sys, stream, pipe)
    words, code = ((*runs, "--json"), 0) if stream == "stdout" else (("nowhere", "b"), 2)
    assert code_of("diff", *words) == code
    pipe.close()


def test_command__of_a_closed_stdout_does_its_work(
    runs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert code_of("diff", *runs) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_command__says_that_its_output_could_not_be_written(
    runs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert code_of("diff", *runs) == os.EX_IOERR
    assert "standard output cannot be written: No space left" in capsys.readouterr().err
