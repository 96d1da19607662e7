"""Presets of the papers: each value names its source or says that the paper is silent; schemas of
the commands that read them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT, SIMULATE
from tests.papers.finished import papers

ROOT = Path(__file__).resolve().parents[2]
PRESETS = ROOT / "configs"
HEADS = sorted(ROOT.glob("research/papers/heads/presets/*.yaml"))
FILES = [*sorted(PRESETS.glob("papers/**/*.yaml")), *HEADS]
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
    text, name = file.read_text(encoding="utf-8"), name_of(file)
    if file in HEADS:
        complain_of_the_encoder(name)
    else:
        audits = file.parent.name == "audits"
        settings = parse(AUDIT if audits else SIMULATE, ["--config", name]).settings
        assert not audits or settings.encoder.name == "RUN"
        about = preset_page().partition(f" {name} ")[2]
        assert about.startswith(("Chen", "Liu", "Sun", "Zhu", "Yang", "The"))
    assert unsourced(text) == []
    for name in re.findall(r"fedmia audit --config (\S+) --encoder RUN", text):
        assert (PRESETS / f"{name}.yaml").is_file()
        assert parse(AUDIT, ["--config", name, "--encoder", "RUN"]).settings
    for path in re.findall(r"papers head --config (\S+) --encoder RUN", text):
        complain_of_the_encoder(f"{ROOT / path} --encoder RUN")


def complain_of_the_encoder(config: str) -> None:
    """Nothing is wrong with a preset of heads but that there is no such run."""
    ran = papers(f"head --config {config} --device cpu")
    assert ran.code == 2 and "unknown encoder 'RUN'" in ran.err, ran.err


@cache
def preset_page() -> str:
    return " ".join((parse(SIMULATE, ["--list", "preset"]).page or "").split())


@pytest.mark.parametrize(
    ("command", "good", "bad"),
    [
        ("head", [yaml.safe_load(file.read_text("utf-8")) for file in HEADS], {"epsilons": [0.0]}),
        ("run", [{"run": "RUN", "device": "cpu"}], {"device": "tpu"}),
        ("protocols", [{"scale": "smoke"}], {"encoders": 1}),
        ("", [{"tables": ["all"], "scale": "paper"}], {"scale": "big"}),
    ],
)
def test_schema__fits_what_a_command_takes_and_nothing_else(
    command: str, good: list[object], bad: object
) -> None:
    """Every option has its help, on the page and in the schema."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(papers(f"{command} --schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for tree in good:
        validator.validate(tree)
    assert not validator.is_valid(bad) and not validator.is_valid({"nosuch": 1})
    page = papers(f"{command} --help").out
    assert page.startswith("usage: python -m research.papers")
    for name, one in schema["properties"].items():
        if name not in ("base", "_run") and one.get("type") != "object":
            assert f"--{name.replace('_', '-')}" in page or one.get("description"), name
