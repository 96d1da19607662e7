"""Help, version and a mistyped flag: at once, without torch, from an index that is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedmia.cli import flags as flag_reader
from fedmia.cli import help, index
from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.options.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
# Both names bound to None: to import either is an ImportError.
BARE = """
import runpy, sys
sys.modules["torch"] = sys.modules["numpy"] = None
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


def ran(command: str, *flags: str) -> tuple[int, str, str]:
    """Exit code and what is printed of a command in a Python that has no torch."""
    done = subprocess.run(
        [sys.executable, "-c", BARE, f"fedmia.{command}", *flags],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_pages__need_no_torch(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert ran(command, "--help") == (0, help.help_page(COMMANDS[command], 80) + "\n", "")
    assert ran(command, "--version")[1].startswith("fedmia ")


@pytest.mark.parametrize(
    ("command", "flag", "nearest"),
    [
        ("simulate", "--cleints", "--clients"),
        ("audit", "--member", "--members"),
        ("sweep", "--cleints", "--clients"),
        ("tradeoff", "--defences", "--defenses"),
        ("head", "--epsilon", "--epsilons"),
        ("paper", "--besides", "--beside"),
    ],
)
def test_mistyped_flag__is_refused_without_torch(command: str, flag: str, nearest: str) -> None:
    hint = f"unknown flag '{flag}'; did you mean '{nearest}'? (--help shows them all)"
    assert ran(command, flag, "3") == (2, "", f"fedmia: error: {hint}\n")


@pytest.mark.parametrize(
    ("flags", "line"),
    [
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
    ],
)
def test_mistyped_option_of_a_plugin__is_refused_without_torch(flags: str, line: str) -> None:
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
    early.value.tongue = late.value.tongue
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
