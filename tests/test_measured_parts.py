"""What `research/measurements/where.py` measures by part still stands where it looks for it."""

from __future__ import annotations

import importlib
import runpy
from functools import reduce
from pathlib import Path

PARTS = Path(__file__).parents[1] / "research" / "measurements" / "_parts.py"


def test_parts__every_function_that_is_measured_exists() -> None:
    script = runpy.run_path(str(PARTS))
    for path in (*script["PARTS"], *script["WORKS"]):
        module, _, name = path.partition(":")
        assert callable(reduce(getattr, name.split("."), importlib.import_module(module))), path
