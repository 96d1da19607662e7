"""Rows of tables in the pages of docs/: result files, numbers and intervals as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DASH = "–"
RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"


def load(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short(value: float | None, digits: int = 2) -> str:
    """`.69`, `1.00`, `-.12`."""
    return DASH if value is None else f"{value:.{digits}f}".replace("0.", ".", 1)


def ends(ci: Sequence[float] | None, digits: int = 2) -> str:
    return f" [{', '.join(short(end, digits) for end in ci)}]" if ci else ""


def mean(spread: Any, digits: int = 2) -> str:
    """`.84 [.81, .86]` of a mean over models."""
    return short(spread["mean"], digits) + ends(spread["ci"], digits)


def change(spread: Any, digits: int = 3) -> str:
    """`-.116 [-.153, -.078]`."""
    if spread is None:
        return DASH
    sign = "+" if spread["mean"] >= 0 else ""
    return sign + mean(spread, digits)
