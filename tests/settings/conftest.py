"""Settings as a command line gives them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmia.cli.command import parse
from fedmia.cli.commands import COMMANDS
from fedmia.settings.errors import InputError
from fedmia.settings.tree import flatten, to_tree
from fedmia.settings.yamlfile import dump

IMAGES = "--members digits --nonmembers digits"
AUDIT = f"audit --encoder x {IMAGES} "


def built(line: str) -> Any:
    """The settings that a line asks for."""
    command, *words = shlex.split(line)
    return parse(COMMANDS[command], words).settings


def refused(line: str) -> str:
    """The one line with which a line is refused."""
    with pytest.raises(InputError) as caught:
        built(line)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(settings: Any) -> str:
    """The settings as config.yaml holds them."""
    return dump(to_tree(settings))


def values(settings: Any) -> dict[str, Any]:
    """Every option that the settings hold, by its path."""
    return flatten(type(settings), to_tree(settings))


def in_files(lines: str, files: dict[str, str], folder: Path) -> Iterator[str]:
    """The lines with a file for each name in braces, which holds what `files` says of it."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    for line in lines.strip().splitlines():
        yield re.sub(r"\{(\w+)\}", lambda name: str(folder / f"{name[1]}.yaml"), line)
