"""The same bad input through flags, YAML and Python: one line each, the same sentence but for how
the option is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fedmia
from fedmia.cli.command import parse
from fedmia.cli.commands import AUDIT, SIMULATE
from fedmia.options.errors import InputError
from fedmia.options.yamlfile import dump

SIDES: dict[str, Any] = {"encoder": "x.pth", "members": "digits", "nonmembers": "synthetic"}
# Command, flags, the same as a tree of settings, and what the sentence says after the option.
BAD: list[tuple[str, str, dict[str, Any], str]] = [
    ("simulate", "--clients 0", {"federation": {"clients": 0}}, "must be >= 1, got 0"),
    ("simulate", "--rounds 0", {"federation": {"rounds": 0}}, "must be >= 1, got 0"),
    ("simulate", "--seed -1", {"seed": -1}, "must be >= 0, got -1"),
    ("simulate", "--attacks similarty", {"attacks": ["similarty"]}, "did you mean 'similarity'?"),
    ("simulate", "--strategy fedsgd", {"strategy": "fedsgd"}, "unknown strategy 'fedsgd'"),
    ("simulate", "--model resnet19", {"model": "resnet19"}, "did you mean 'resnet18'?"),
    ("simulate", "--dataset mnist", {"data": "mnist"}, "unknown dataset 'mnist'"),
    ("simulate", "--defense dpsdg", {"defense": "dpsdg"}, "did you mean 'dpsgd'?"),
    ("simulate", "--train.lr 0", {"train": {"lr": 0}}, "must be > 0, got 0"),
    ("simulate", "--mean 128", {"data": {"mean": [128]}}, "128/255 = 0.502"),
    ("simulate", "--attacker activ", {"attacker": "activ"}, "did you mean 'active'?"),
    ("simulate", "--size 4", {"data": {"size": 4}}, "must be >= 8, got 4"),
    ("audit", "--known 1", {"known": 1}, "must be >= 2, got 1"),
    ("audit", "--mean 128", {"mean": [128]}, "128/255 = 0.502"),
    ("audit", "--query-budget 0", {"query_budget": 0}, "must be >= 1, got 0"),
    ("audit", "--attacks similarty", {"attacks": ["similarty"]}, "did you mean 'similarity'?"),
    ("audit", "--channels rbg", {"channels": "rbg"}, "did you mean 'rgb'?"),
    ("audit", "--shadow.epochs 0", {"shadow": {"epochs": 0}}, "must be >= 1, got 0"),
]


def by_flags(command: str, flags: str, folder: Path) -> str:
    sides = [part for name, value in SIDES.items() for part in (f"--{name}", value)]
    words = [*(sides if command == "audit" else []), *flags.split()]
    return refused(command, words)


def by_yaml(command: str, tree: dict[str, Any], folder: Path) -> str:
    file = folder / "settings.yaml"
    file.write_text(dump({**(SIDES if command == "audit" else {}), **tree}))
    return refused(command, ["--config", str(file)]).replace(f" in {file}", "")


def by_python(command: str, tree: dict[str, Any], folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        if command == "simulate":
            fedmia.run_simulation(tree, quiet=True)
        else:
            fedmia.audit_encoder(*SIDES.values(), **tree)
    return str(caught.value)


def refused(command: str, words: list[str]) -> str:
    with pytest.raises(InputError) as caught:
        parse(AUDIT if command == "audit" else SIMULATE, words)
    return str(caught.value)


def without_option(line: str) -> str:
    """The sentence with each way to name an option, and each number's type, taken alike."""
    line = re.sub(r"--?[\w.-]+|\b\w+(?:\.\w+)+:?(?= must| value)|^\w+(?= must)", "OPTION", line)
    line = re.sub(r"unknown [\w.]+ value", "unknown OPTION value", line)
    return re.sub(r"\b(\d+)\.0\b", r"\1", line)


@pytest.mark.parametrize(("command", "flags", "tree", "says"), BAD)
def test_flags_yaml_python__one_line_and_the_same_sentence(
    command: str, flags: str, tree: dict[str, Any], says: str, tmp_path: Path
) -> None:
    lines = [by_flags(command, flags, tmp_path), by_yaml(command, tree, tmp_path)]
    lines.append(by_python(command, tree, tmp_path))
    assert all("\n" not in line and says in line for line in lines), lines
    assert len({without_option(line) for line in lines}) == 1, lines
