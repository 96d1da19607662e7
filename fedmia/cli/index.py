"""`python -m fedmia.cli.index`: write `index.json`, what `--help` says of each command's options.

It holds what the settings' classes and the plugins' roles say, so that help, and a flag that there
is not, need neither. To be run again where an option of a command changes, which a test sees to.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedmia.cli.commands import COMMANDS
from fedmia.config.shape import shape_of

FILE = Path(__file__).with_name("index.json")


def build() -> dict[str, Any]:
    """The shape of each command's settings, by the name of their class."""
    return {str(command.root): asdict(shape_of(command.settings)) for command in COMMANDS.values()}


def text() -> str:
    """The index as its file holds it."""
    return json.dumps(build(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
