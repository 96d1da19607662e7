"""What compares runs, printed: by the sweep, the trade-off and audits of several."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from fedmia.report.publish import json_text


def failures(cells: Iterable[Mapping[str, Any]]) -> Callable[[Console], None]:
    """Prints a line for each cell that failed: its `name` and its `reason`."""

    def lines(console: Console) -> None:
        for cell in cells:
            if cell["reason"]:
                line = f"{cell['name']} failed: {cell['reason']}"
                console.print(line, highlight=False, markup=False, soft_wrap=True)

    return lines


def print_summary(
    report: Mapping[str, Any],
    table: Callable[[], RenderableType],
    page: Path | None,
    *,
    json: bool,
    quiet: bool,
    more: Callable[[Console], None],
) -> None:
    """Print a report: as JSON, as its `sentence` alone, or as a table and where its page is.

    Args:
        report: what JSON holds, with its `sentence`.
        table: makes the table.
        page: path of the page; None where none was written.
        json: whether to print JSON alone.
        quiet: whether to print the sentence alone.
        more: prints what stands under the table.
    """
    if json:
        sys.stdout.write(json_text(report))
        return
    console = Console()
    if not quiet:
        console.print(table())
        more(console)
    console.print(report["sentence"], highlight=False, soft_wrap=True)
    if not quiet and page is not None:
        console.print(f"Report: {page}", highlight=False, soft_wrap=True)
