"""Help, version and a mistyped flag: at once, without torch, from an index that is up to date."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedmia.cli import flags as flag_reader
from fedmia.cli import help, index
from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.options.errors import InputError

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
MISTYPED_FLAGS = [
    ("simulate", "--cleints", "--clients"),
    ("audit", "--member", "--members"),
    ("sweep", "--cleints", "--clients"),
    ("tradeoff", "--defences", "--defenses"),
]
MISTYPED_OPTIONS = [
    ("--ssl.quue 3", "unknown option --ssl.quue: ssl 'moco' has no 'quue'; did you mean 'que"),
    (
        "--partition iid --partition.alpha 3",
        "--partition.alpha is no option of partition 'iid', but of dirichlet",
    ),
    (
        "--config smoke --attack.similarity.vews 3",
        "unknown option --attack.similarity.vews: attack 'similarity' has no 'vews'; did you "
        "mean 'views'?",
    ),
]
Ran = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ran() -> Ran:
    """`ran(command, *flags)`: exit code and what is printed of a command in a Python that has no
    torch; it is started once, for all command lines of this file."""
    lines = [(c, flag) for c in COMMANDS for flag in ("--help", "--version")]
    lines += [(command, flag, "3") for command, flag, _ in MISTYPED_FLAGS]
    lines += [("simulate", *flags.split()) for flags, _ in MISTYPED_OPTIONS]
    done = subprocess.run(
        [sys.executable, "-c", BARE], input=json.dumps([(f"fedmia.{c}", *f) for c, *f in lines]),
        cwd=ROOT, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    of = dict(zip(lines, map(tuple, json.loads(done.stdout)), strict=True))
    return lambda *line: of[line]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_pages__need_no_torch(command: str, ran: Ran) -> None:
    assert ran(command, "--help") == (0, help.help_page(COMMANDS[command], 80) + "\n", "")
    assert ran(command, "--version")[1].startswith("fedmia ")


@pytest.mark.parametrize(("command", "flag", "nearest"), MISTYPED_FLAGS)
def test_mistyped_flag__is_refused_without_torch(
    command: str, flag: str, nearest: str, ran: Ran
) -> None:
    hint = f"unknown option {flag}; did you mean '{nearest}'? (--help shows them all)"
    assert ran(command, flag, "3") == (2, "", f"fedmia: error: {hint}\n")


@pytest.mark.parametrize(("flags", "line"), MISTYPED_OPTIONS)
def test_mistyped_option_of_a_plugin__is_refused_without_torch(
    flags: str, line: str, ran: Ran
) -> None:
    code, out, error = ran("simulate", *flags.split())
    assert (code, out) == (2, "") and error.startswith(f"fedmia: error: {line}")


@pytest.mark.parametrize(
    "flags",
    ["--ssl.quue 3", "--ssl mocov2 --ssl.quue 3", "--partition.alpa 1", "--strategy.mu 1"],
)
def test_refuse_options__says_what_the_settings_would(flags: str) -> None:
    command = COMMANDS["simulate"]
    with pytest.raises(InputError) as early:
        flag_reader.refuse_options(command, flag_reader.read(command, flags.split()))
    with pytest.raises(InputError) as late:
        parse(command, flags.split())
    early.value.spelling = late.value.spelling
    assert str(early.value) == str(late.value)


@pytest.mark.parametrize(
    "flags",
    [
        "--ssl package.module:Class --ssl.own 3",
        "--config smoke --partition.alpha 3",
        "--attack.package.module:Class.own 3",
        "--partition file:clients.json",
        "--ssl no-such --ssl.own 3",
    ],
)
def test_refuse_options__leaves_what_it_cannot_know_to_the_settings(flags: str) -> None:
    command = COMMANDS["simulate"]
    flag_reader.refuse_options(command, flag_reader.read(command, flags.split()))


def test_index__is_what_the_settings_and_the_roles_say() -> None:
    assert index.FILE.read_text(encoding="utf-8") == index.text(), "run python -m fedmia.cli.index"
