"""A run of a study in a process of its own: `python -m fedmia.study.child MODULE [ARGUMENT ..]`.

The same as `python -m MODULE`, but that it ends when the study does, by kill -9 too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from fedmia.cli.commands import AUDIT
from fedmia.cli.flags import FlagStyle
from fedmia.study.processes import end_with_the_study

# The report of an audit speaks of flags, not of a file that the study wrote.
OPTIONS: dict[str, dict[str, Any]] = {"fedmia.audit": {"spelling": FlagStyle(AUDIT, {})}}


def command(module: str, *arguments: object) -> Sequence[str]:
    """The command line of `python -m MODULE ARGUMENTS --quiet` that ends when this process does.

    Args:
        module: of the package.
        arguments: of the command.

    Returns:
        The arguments, that of Python first.
    """
    line = (sys.executable, "-m", "fedmia.study.child", module, *arguments, "--quiet")
    return [str(part) for part in line]


if __name__ == "__main__":
    end_with_the_study()
    name, *rest = sys.argv[1:]
    sys.exit(importlib.import_module(name).main(rest, **OPTIONS.get(name, {})))
