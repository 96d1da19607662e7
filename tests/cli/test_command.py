"""Pages of the command line: help, lists, schemas, and which flags there are."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedmia.settings import registry
from tests.commands import fedmia
from tests.options import option_fields
from tests.settings.conftest import built, refused

ROOT = Path(__file__).resolve().parents[2]
PRESETS = ROOT / "configs"
COMMANDS = {"simulate": "simulate", "audit": "audit", "study": "study", "bench": "bench similarity",
            "diff": "diff a b"}  # fmt: skip


@cache
def page(line: str) -> str:
    """What a line prints that asks for a page."""
    ran = fedmia(line)
    assert (ran.code, ran.err) == (0, "") and max(map(len, ran.out.splitlines())) <= 100, line
    return ran.out


def paths(tree: dict[str, Any], above: str = "") -> set[str]:
    """Paths of the options that a schema has beside those of plugins."""
    found = set[str]()
    for name, one in tree.get("properties", {}).items():
        if isinstance(one, dict):
            found |= {above + name} if "default" in one else paths(one, f"{above}{name}.")
    return found


def flat(text: str) -> str:
    return " ".join(text.split())


def test_fedmia__alone_and_with_help_shows_every_command() -> None:
    shown = page("--help")
    assert all(f"\n  {name} " in shown for name in (*COMMANDS, "list"))
    assert len(page("").splitlines()) < 25 and page("--version").startswith("fedmia ")
    assert page("study --version") == page("--version")


@pytest.mark.parametrize("name", COMMANDS)
def test_help__shows_every_option_by_its_shortest_flag(name: str) -> None:
    shown = page(f"{name} --help")
    flags = re.findall(r"^  --([\w.-]+)", shown, re.M)
    assert "\nRun\n" in shown
    assert shown == page(f"{name} -h")
    known = paths(json.loads(fedmia(f"{name} --schema").out)) - {"base", "_run"}
    last = {flag.rpartition(".")[2].replace("-", "_") for flag in flags}
    for path in known:
        plain = path.removesuffix(".name").removesuffix(".mode")
        assert {plain.rpartition(".")[2], plain.replace(".", "_")} & last, path


@pytest.mark.parametrize("name", COMMANDS)
def test_flags__of_the_help_and_paths_of_the_schema_are_known(name: str) -> None:
    """Without a value each is refused for lacking one, and not as unknown; a switch means true."""
    shown = re.findall(r"^  --([\w.-]+) (\S+)", page(f"{name} --help"), re.M)
    flags = {flag for flag, hole in shown if hole.isupper() and hole not in ("BOOL", "[KIND]")} - {
        "plan"
    }
    switches = {flag.replace("-", "_") for flag, hole in shown if hole == "BOOL"}
    if name == "simulate":
        known = paths(json.loads(fedmia("simulate --schema").out)) - {"base"}
        flags |= {path for path in known if path not in switches and path.count(".") == 1}
    for flag in flags:
        for spelled in {flag, flag.replace("_", "-"), flag.replace("-", "_")}:
            assert f"--{spelled} needs a value" in refused(f"{COMMANDS[name]} --{spelled}"), spelled
    if name == "simulate":
        secure = "--federation.secure_aggregation"
        assert built(f"simulate {secure}") == built(f"simulate {secure} true") != built("simulate")


def test_help__defaults_limits_and_choices() -> None:
    shown = flat(page("simulate --help"))
    assert "clients in the federation (default 10, >= 1)" in shown
    assert "--attacker {none,passive,active,server}" in shown
    assert all(f"\n  {name} " in page("list role") for name in ("none", "passive", "active"))


@pytest.mark.parametrize("kind", sorted(registry.KINDS))
def test_list__every_plugin_with_summary_paper_and_options(kind: str) -> None:
    whole, detail = flat(page("list")), flat(page(f"list {kind}"))
    assert page(f"simulate --list {kind}") == page(f"audit --list {kind} --quiet")
    assert flat(page(f"simulate --list {kind}")) == detail
    for name in registry.names(kind):
        cls = registry.load(kind, name)
        for one in (whole, detail):
            assert name in one and flat(registry.summary(cls)) in one
            assert flat(registry.paper(cls)) in one
        assert all(f".{one.name} " in detail for one, _ in option_fields(cls))


def test_list__alone_is_of_what_the_command_takes() -> None:
    assert page("simulate --list") == page("list")
    assert page("audit --list") == page("list attack")


def test_list_preset__shows_each_once_and_what_it_is() -> None:
    shown = page("list preset")
    for file in PRESETS.rglob("*.yaml"):
        name = file.relative_to(PRESETS).with_suffix("").as_posix()
        assert shown.count(f"\n  {name} ") + shown.count(f"\n  {name}\n") == 1, name
    assert "Every part of a run once" in shown


def test_plugins__none_has_an_option_named_like_one_of_its_section() -> None:
    of_data = {"name", "dir", "size", "mean", "std", "options"}
    for kind in registry.KINDS:
        own = of_data if kind == "dataset" else {"name"}
        for name in registry.names(kind):
            assert not own & {f.name for f, _ in option_fields(registry.load(kind, name))}, name


def test_out__of_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    said = fedmia("simulate --clients 2 --out=~/notes.txt").err
    assert f"'{tmp_path}/notes.txt' is a file" in said


def test_summary__of_a_class_without_a_docstring_is_no_signature() -> None:
    """As all are under `python -OO`."""

    @dataclass
    class Bare:
        name: int = 3

    @dataclass
    class Below(Bare):
        pass

    assert registry.summary(Bare) == registry.summary(Below) == ""
