"""Pieces of Markdown: tables, escaped text, and docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Note|Notes|Example|Examples):$")


def escape(text: str) -> str:
    """Text of a docstring or a help as Markdown that shows it as it is.

    What stands between backticks stays code; elsewhere the characters that mean something to
    Markdown or HTML are escaped.
    """
    parts = re.split(r"(`[^`\n]+`)", text)
    return "".join(
        part if i % 2 else re.sub(r"([\\*_<>\[\]#$~])", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def cell(text: str) -> str:
    """Text of a cell of a table: one line, `|` escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown.

    Args:
        head: titles of the columns.
        rows: cells of each row.
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines) + "\n"


def sections(doc: str) -> dict[str, str]:
    """The parts of a Google docstring: "" is the text before the first heading."""
    parts: dict[str, list[str]] = {"": []}
    at = ""
    for line in doc.splitlines():
        if heading := SECTION.match(line):
            at = heading[1]
            parts[at] = []
        elif at and line.strip() and not line.startswith(" "):
            parts[""].append(line)
            at = ""
        else:
            parts[at].append(line)
    return {name: inspect.cleandoc("\n".join(lines)) for name, lines in parts.items()}


def entries(section: str) -> dict[str, str]:
    """Name -> text of the entries of a section such as `Attributes:`."""
    entry_by_name: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if match := re.match(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*)", line):
            names = match[1].split(", ")
            entry_by_name |= dict.fromkeys(names, match[2])
        elif names and line.strip():
            entry_by_name |= {name: f"{entry_by_name[name]} {line.strip()}" for name in names}
    return entry_by_name


def prose(cls: type) -> str:
    """What the docstring of a class says, without its sections, as Markdown."""
    return escape(sections(inspect.getdoc(cls) or "")[""])
