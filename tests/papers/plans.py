"""What the tables of the papers plan, each once a process: a plan of all takes seconds."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from research.papers.entries import Entry, TableCell, read_entries

SCALES = ("smoke", "small", "paper")
ENTRIES = read_entries()
FILES: Mapping[str, Any] = {one.paper: one.layers["file"] for one in ENTRIES.values()}
PAPERS = {"encodermi", "federated", "logistic", "lpla", "partcrop"}
QUESTIONS = {"primaries", "regime"}  # files of planned questions, asked at small alone


@functools.cache
def plan(name: str, scale: str) -> tuple[TableCell, ...]:
    """The cells of an entry, of one target each."""
    return tuple(ENTRIES[name].plan(scale, 1))


def of_paper(name: str) -> list[Entry]:
    return [entry for entry in ENTRIES.values() if entry.paper == name]
