"""Presets of the papers: each value names its source or says that the paper is silent."""

from __future__ import annotations

import re
from functools import cache
from operator import attrgetter
from pathlib import Path

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT, SIMULATE
from fedmia.settings.commands.compatibility import check_experiment
from fedmia.settings.presets import PRESETS, describe_preset
from papers.commands import HEAD

ROOT = Path(__file__).resolve().parents[2]
HEADS = sorted(ROOT.glob("papers/heads/presets/*.yaml"))
FILES = [*sorted(PRESETS.glob("papers/**/*.yaml")), *HEADS]
COMMAND = {"papers": SIMULATE, "audits": AUDIT, "presets": HEAD}
KEY = re.compile(r"^( *)([\w-]+):(?= |$)(.*)$")
# A place in a paper, a file of official code, or the word that says there is none.
SOURCE = re.compile(
    r"\b(Secs?\. [IVX\d]|Tables? [IVX\d]|Figs?\. \d|Eqs?\. \d|Algorithm \d|App\. [A-Z]"
    r"|[\w/]+\.(py|md|sh)\b|silent\b)"
)


def name_of(file: Path) -> str:
    return str(file) if file in HEADS else file.relative_to(PRESETS).with_suffix("").as_posix()


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
def test_preset__resolves_under_its_name_and_names_the_source_of_each_value(file: Path) -> None:
    """As `--config NAME` of its command, whose page of presets describes it. The line of an audit
    or of heads that a preset of a run gives parses, too."""
    command, text = COMMAND[file.parent.name], file.read_text(encoding="utf-8")
    settings = parse(command, ["--config", name_of(file)]).settings
    if command is SIMULATE:
        check_experiment(settings)
    else:
        assert attrgetter("encoder" if command is HEAD else "encoder.name")(settings) == "RUN"
    if command is not HEAD:
        about = describe_preset(name_of(file))
        assert about.startswith(("Chen", "Liu", "Sun", "Zhu", "Yang", "The"))
        assert name_of(file) in preset_page()
    assert unsourced(text) == []
    for name in re.findall(r"fedmia audit --config (\S+) --encoder RUN", text):
        assert (PRESETS / f"{name}.yaml").is_file()
        assert parse(AUDIT, ["--config", name, "--encoder", "RUN"]).settings
    for path in re.findall(r"papers head --config (\S+) --encoder RUN", text):
        assert parse(HEAD, ["--config", str(ROOT / path), "--encoder", "RUN"]).settings


@cache
def preset_page() -> str:
    return parse(SIMULATE, ["--list", "preset"]).page or ""
