"""A run of a study in a process of its own.

The same as `python -m MODULE [ARGUMENT ..]`, but that it ends when the study does, by kill -9 too,
and finds modules where the study does: `-m` would first look into the working folder.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from fedmia.study.processes import end_with_the_study

PROGRAM = """import sys
sys.path[:] = dict.fromkeys([*sys.argv[1].split(chr(10)), *sys.path])
from fedmia.study.child import main
sys.exit(main(*sys.argv[2:]))
"""


def command(module: str, *arguments: object) -> Sequence[str]:
    """The command line of `python -m MODULE ARGUMENTS --quiet` that ends when this process does.

    Args:
        module: of the package.
        arguments: of the command.

    Returns:
        The arguments, that of Python first.
    """
    path = [folder or os.getcwd() for folder in sys.path]
    if path[-1] == os.getcwd():  # for plugins; our own packages come before
        path.pop()
    line = (sys.executable, "-P", "-c", PROGRAM, "\n".join(path), module, *arguments, "--quiet")
    return [str(part) for part in line]


def main(module: str, *arguments: str) -> int:
    """Run a command's module in this process."""
    end_with_the_study()
    code: int = importlib.import_module(module).main(arguments)
    return code
