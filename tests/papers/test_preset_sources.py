"""Presets of the papers: each value names its source or says that the paper is silent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.cli.presets import PRESETS, describe_preset
from fedmia.config.compatibility import check_experiment

FILES = sorted(PRESETS.glob("papers/**/*.yaml"))
COMMAND = {"papers": "simulate", "audits": "audit", "heads": "head"}
KEY = re.compile(r"^( *)([\w-]+):(?= |$)(.*)$")
# A place in a paper, a file of official code, or the word that says there is none.
SOURCE = re.compile(
    r"\b(Secs?\. [IVX\d]|Tables? [IVX\d]|Figs?\. \d|Eqs?\. \d|Algorithm \d|App\. [A-Z]"
    r"|[\w/]+\.(py|md|sh)\b|silent\b)"
)


def name_of(file: Path) -> str:
    return file.relative_to(PRESETS).with_suffix("").as_posix()


def unsourced(text: str) -> list[str]:
    """Keys with a value that have no source on their line nor in the comment right above."""
    lines, odd = text.splitlines(), []
    for at, line in enumerate(lines):
        match = KEY.match(line)
        if match is None or not match[3].partition("#")[0].strip():
            continue  # the head of a block: its keys name theirs
        comments, above = [match[3].partition("#")[2]], at - 1
        while above >= 0 and lines[above].startswith(f"{match[1]}#"):
            comments.append(lines[above])
            above -= 1
        if above < 0:  # the comment at the top of a file is of the whole file
            comments = comments[:1]
        if not SOURCE.search(" ".join(comments)):
            odd.append(match[2])
    return odd


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_preset__names_the_source_of_each_value(file: Path) -> None:
    assert unsourced(file.read_text(encoding="utf-8")) == []


def test_unsourced__finds_what_has_none() -> None:
    text = (
        "# Sec. 1: the whole file\na: 1\nb: 2  # Table 3\n# main.py: so\nc: {d: 4}\ne:\n"
        "  f: 5  # because\n  # silent: none\n  g: 6\n  h: 7\n"
    )
    assert unsourced(text) == ["a", "f", "h"]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_preset__resolves_under_its_name(file: Path) -> None:
    """As `--config NAME` of its command, whose page of presets describes it."""
    command = COMMANDS[COMMAND[file.parent.name]]
    settings = parse(command, ["--config", name_of(file)]).settings
    if command is COMMANDS["simulate"]:
        check_experiment(settings)
    else:
        assert settings.encoder == "RUN"
    assert describe_preset(name_of(file)).startswith(("Chen", "Liu", "Sun", "Zhu", "Yang", "The"))
    assert name_of(file) in (parse(COMMANDS["simulate"], ["--list", "preset"]).page or "")


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_preset__commands_in_it_parse(file: Path) -> None:
    """The line of an audit or of heads that a preset of a run gives."""
    text = file.read_text(encoding="utf-8")
    for command, name in re.findall(r"fedmia (audit|head) --config (\S+) --encoder RUN", text):
        assert (PRESETS / f"{name}.yaml").is_file()
        assert parse(COMMANDS[command], ["--config", name, "--encoder", "RUN"]).settings
