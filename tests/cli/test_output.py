"""What a command prints goes out in any encoding, whoever reads it; the exit code is the work's."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from fedmia.cli.command import DISK_FAILED, Invocation, print_page, run
from fedmia.cli.commands import AUDIT
from fedmia.cli.output import open_output
from fedmia.report.publish import json_text

TEXT = "naïve ≤ ± 画像 \U0001f600 caf\udce9"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252"])
def test_any_text__goes_out_in_any_encoding_and_json_stays_json(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    with open_output():
        sys.stdout.write(json_text({"text": TEXT}))
    assert json.loads(out.buffer.getvalue().decode(encoding)) == {"text": TEXT}  # type: ignore[attr-defined]
    assert sys.stdout is out and out.errors == "strict"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_run__whose_reader_has_left_keeps_its_exit_code(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    pipe = os.fdopen(write, "w")
    monkeypatch.setattr(sys, stream, pipe)

    def work(_: Invocation) -> int:
        for _ in range(3):
            print("x" * 100_000, file=getattr(sys, stream), flush=True)
        return 3

    flags = ["--encoder", "x", "--members", "m", "--nonmembers", "n"]
    assert run(AUDIT, flags, work) == 3
    pipe.close()


def test_run__of_a_closed_stdout_does_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    flags = ["--encoder", "x", "--members", "m", "--nonmembers", "n"]
    assert run(AUDIT, flags, lambda _: sys.stdout.write("x")) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_run__says_that_its_output_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        flags = ["--encoder", "x", "--members", "m", "--nonmembers", "n"]
        assert run(AUDIT, flags, lambda _: print("x") or 0) == DISK_FAILED
    assert "standard output cannot be written: No space left" in capsys.readouterr().err


def test_page__of_a_terminal_that_knows_ascii_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert print_page("Brännvall") == 0
    assert out.buffer.getvalue() == b"Br\\u00e4nnvall\n"  # type: ignore[attr-defined]
