"""The statistics can be used alone: they import numpy and scipy, nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import fedmia.statistics

HERE = Path(fedmia.statistics.__file__).parent
ALLOWED = ("numpy", "scipy", "fedmia.statistics")


def test_imports__are_numpy_and_scipy_alone() -> None:
    outside = set()
    for file in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                outside.add(str(node.module))
            elif isinstance(node, ast.Import):
                outside |= {alias.name for alias in node.names}
    outside = {name for name in outside if name.partition(".")[0] not in sys.stdlib_module_names}
    assert outside and not {name for name in outside if not name.startswith(ALLOWED)}
