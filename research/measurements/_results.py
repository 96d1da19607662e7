"""How results are written: JSON in which a row is a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write results as JSON, a list with one entry a line."""
    lines = ",\n".join(f" {json.dumps(name)}: {_rows(value)}" for name, value in results.items())
    path.write_text(f"{{\n{lines}\n}}\n")


def _rows(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(v)}" for v in value) + "\n ]"
