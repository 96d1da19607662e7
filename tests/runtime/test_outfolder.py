"""The folder of `--out`: what may lie there, what is left there, and who may write into it."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedmia.storage.durable import WAYS_ROUND
from tests.bank import Bank
from tests.commands import Ran, fedmia
from tests.watched import watch

ROOT = Path(__file__).resolve().parents[2]
ENDS = "simulate --quiet --clients 2 --attacks none --device cpu --strategy tests.watched:Refuses"


def refusal(out: Path) -> str:
    """What a command says that may not write there."""
    ran = fedmia(ENDS, out)
    assert ran.code == 2 and ran.err.count("\n") == 1, ran.err
    return ran.err.removeprefix("fedmia: error: ").removesuffix("\n")


def test_occupied__names_what_is_there_and_what_stands_in_the_way(
    bank: Bank, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.yaml").mkdir()
    run, file = bank.run("central"), tmp_path / "other" / "file"
    for out, message in (
        (run, "already holds another run; name a new folder"),
        (tmp_path / "other", "already holds 'file'; name a new folder"),
        (file, "is a file"),
        (file / "RUN", f"cannot be made: '{file}' is no folder"),
    ):
        assert refusal(out) == f"out (--out) '{out}' {message}"
    assert WAYS_ROUND[errno.ENAMETOOLONG] in refusal(tmp_path / ("x" * 300))
    assert file.read_text() == "mine"


def test_begun__holds_the_settings_and_where_they_were_run(bank: Bank) -> None:
    content = yaml.safe_load((bank.run("central") / "config.yaml").read_text(encoding="utf-8"))
    about = content.pop("_run")
    assert content["clients"] == 1 if "clients" in content else content["federation"]
    assert about["format"] == 1 and {*about} == {"format", "versions", "hardware", "commit"}
    assert about["versions"]["torch"] and about["versions"]["python"]
    assert about["hardware"]["cores"] >= 1
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True)
    assert about["commit"] == (done.stdout.decode().strip() or None)
    again = yaml.safe_load((bank.run("server") / "config.yaml").read_text())["_run"]
    assert again == about  # nothing that varies from run to run


def test_given_up__leaves_nothing_that_was_not_there_before(tmp_path: Path) -> None:
    """Of a run whose images cannot be found."""
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "new" / "RUN", tmp_path / "empty"):
        assert fedmia(f"{ENDS} --dataset npz:{tmp_path}/none.npz", out).code == 2
    assert [p.name for p in tmp_path.rglob("*")] == ["empty"]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP])
def test_file_system_without_locks__keeps_nobody_out_and_says_so(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    ran = fedmia(ENDS, tmp_path / "RUN")
    (line,) = [line for line in ran.err.splitlines() if "no locks" in line]
    assert ran.code == 1 and f"'{tmp_path / 'RUN'}'" in line


def test_second_command__is_refused_while_one_is_at_work_there(tmp_path: Path) -> None:
    """And told by whom. Where the first begins it sees a folder that nobody works in."""
    out, told = tmp_path / "RUN", list[Ran]()
    watch().acts["main", 2] = lambda: told.append(fedmia(ENDS, out))
    line = ENDS.replace("Refuses", "Mean") + " --rounds 2 --model.width 2 --split.members 24 "
    line += "--split.nonmembers 40 --split.known 6 --split.test 20"
    assert fedmia(line, out).code == 0
    (ran,) = told
    assert ran.code == 2 and f"another command is at work in it (process {os.getpid()}" in ran.err
