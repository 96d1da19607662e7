"""Help, version and a mistyped flag: at once, without torch, from an index that is up to date."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_command import COMMANDS
from tests.commands import fedmia
from tests.snapshots import Snapshot

ROOT = Path(__file__).resolve().parents[2]
# Both names bound to None: to import either is an ImportError. Each command line after the first
# finds Python as the first did: none of our modules loaded.
BARE = """
import contextlib, io, json, runpy, sys
sys.modules["torch"] = sys.modules["numpy"] = None
done = []
for command, *sys.argv[1:] in json.load(sys.stdin):
    for name in [n for n in sys.modules if n.partition(".")[0] == "fedmia"]:
        del sys.modules[name]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module(command, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code
    done.append((code, out.getvalue(), err.getvalue()))
json.dump(done, sys.stdout)
"""
MISTYPED = [
    "cli.main simulate --cleints 3",
    "simulate --cleints 3",
    "audit --member 3",
    "study --cleints 3",
    "study --defences 3",
    "simulate --alpha 3",
    "simulate --dpsgd",
]


def test_pages_and_mistyped_options__need_no_torch(snapshot: Snapshot) -> None:
    pages = [(command, flag) for command in COMMANDS for flag in ("--help", "--version")]
    lines = [*pages, *(tuple(line.split()) for line in MISTYPED)]
    done = subprocess.run(
        [sys.executable, "-c", BARE], input=json.dumps([(f"fedmia.{c}", *f) for c, *f in lines]),
        cwd=ROOT, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    results = dict(zip(lines, map(tuple, json.loads(done.stdout)), strict=True))
    for command in COMMANDS:
        code, page, error = results[command, "--help"]
        assert (code, error) == (0, "") and max(map(len, page.splitlines())) <= 80
        assert page.split() == fedmia(f"{command} --help").out.split()
        assert results[command, "--version"][1].startswith("fedmia ")
    wrong = [results[line] for line in lines[len(pages) :]]
    assert {(code, out) for code, out, _ in wrong} == {(2, "")}
    snapshot("".join(error for *_, error in wrong))


def test_index__is_what_the_settings_and_the_roles_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be written anew."""
    written = dict[Path, str]()
    monkeypatch.setattr(Path, "write_text", lambda file, text, **_: written.update({file: text}))
    runpy.run_module("fedmia.cli.index", run_name="__main__")
    ((file, text),) = written.items()
    assert file.read_text(encoding="utf-8") == text, "run python -m fedmia.cli.index"
