"""Sphinx extension: docstrings of this project as reStructuredText.

They are plain text with `code` in single backticks; characters that mean something to
reStructuredText elsewhere are escaped before the sections are read.
"""

from __future__ import annotations

import re
from typing import Any


def plain(text: str) -> str:
    """A line with what is special outside of backticks escaped; names of `Args:` stay."""
    parts = re.split(r"(``[^`]*``|`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"(?<!\\)([*|])", r"\\\1", parts[i])
        parts[i] = re.sub(r"(\w)_(?!\w)", r"\1\\_", parts[i])
    return "".join(parts)


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Of `autodoc-process-docstring`."""
    table = False
    for i, line in enumerate(lines):
        if line.lstrip().startswith("|"):  # a table of Markdown stays as it was written
            lines[i] = f"    {line}"
            if not table:
                lines[i] = f"::\n\n{lines[i]}"
            table = True
        else:
            table = False
            lines[i] = plain(line)
    lines[:] = "\n".join(lines).split("\n")
    if what == "property":  # or napoleon takes what stands before a colon for a type
        lines.insert(0, "\\")


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx; before napoleon, which reads the sections."""
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
