"""`python -m fedmia.cli.index`: write `index.json`, the options of commands and of plugins.

It holds the options of settings and plugins, so that help and the error for an unknown option need
no import of them. Run it again after every change of an option; a test checks that.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from fedmia.cli.commands import COMMANDS
from fedmia.settings import registry
from fedmia.settings.flags import INDEX
from fedmia.settings.layout import layout
from fedmia.settings.options import option_fields


def build() -> dict[str, Any]:
    """The flag layout of each command by the class of its settings, and each plugin's options."""
    commands = COMMANDS.values()
    return {
        "shapes": {
            str(command.root): asdict(layout(command.settings).flags()) for command in commands
        },
        "plugins": {
            kind: {
                name: [one.name for one, _ in option_fields(registry.load(kind, name))]
                for name in registry.names(kind)
            }
            for kind in registry.KINDS
        },
    }


def text() -> str:
    """The index as its file holds it."""
    return json.dumps(build(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    INDEX.write_text(text(), encoding="utf-8")
