"""`fedmia COMMAND`: the commands by name, the pages of presets and roles."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fedmia.cli import command, help
from fedmia.cli.commands import COMMANDS
from fedmia.cli.main import main
from fedmia.settings.commands.roles import ATTACKERS
from fedmia.settings.presets import PRESETS

Capture = pytest.CaptureFixture[str]


def test_main__alone_and_with_help_shows_every_command(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    assert all(f"\n  {name} " in page for name in (*COMMANDS, "list"))
    assert main([]) == 0 and len(page.splitlines()) < 25


def test_main__a_command_is_given_its_own_arguments(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedmia"])
    # runpy warns of a second one.
    monkeypatch.delitem(sys.modules, "fedmia.study.__main__", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["study", "--version"])
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("fedmia ")


@pytest.mark.parametrize("name", COMMANDS)
def test_main__a_run_reads_its_command_line_once(
    name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls, nowhere = command.read, list[Any](), "npz:nowhere.npz"
    monkeypatch.setattr(command, "read", lambda *line: calls.append(line) or read(*line))
    if name == "study":
        monkeypatch.setattr("fedmia.study.command.run_command", lambda *of: 2)
    monkeypatch.setattr(sys, "argv", ["fedmia"])
    module = f"fedmia.{name}.__main__" if name in ("study", "bench") else f"fedmia.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    audited = ["--encoder", "nowhere.pt", "--members", nowhere, "--nonmembers", nowhere]
    lines = {"audit": audited, "bench": ["similarity", "--bench", "nowhere"]}
    with pytest.raises(SystemExit) as ended:
        main([name, *lines.get(name, ["--dataset", nowhere])])
    assert ended.value.code == 2 and len(calls) == 1, capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("reproduce", "`python -m papers TABLE`"),
        ("head", "`python -m papers head`"),
        ("paper", "`python -m papers run RUN`"),
        ("sweep", "`fedmia study CONFIG --over OPTION=VALUE"),
        ("tradeoff", "`fedmia study CONFIG --defenses NAME,NAME"),
    ],
)
def test_main__what_took_the_place_of_a_command_is_named(
    name: str, instead: str, capsys: Capture
) -> None:
    assert main([name, "--out", "x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fedmia: error: fedmia {name}") and instead in line


def test_list__shows_each_preset_once_and_what_it_is() -> None:
    page = help.list_page("preset", 100)
    for file in PRESETS.rglob("*.yaml"):
        name = file.relative_to(PRESETS).with_suffix("").as_posix()
        assert page.count(f"\n  {name} ") + page.count(f"\n  {name}\n") == 1, name
    assert "Every part of a run once" in page


def test_list_role__shows_every_value_of_attacker() -> None:
    page = help.list_page("role", 100)
    assert all(f"\n  {name} " in page for name in ATTACKERS)
