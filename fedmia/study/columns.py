"""Tables from rows: a column is the path of a value, and the value's kind says how it reads.

`{"name": "point", "auc": "mean AUC, 95 %", "auc.n": "models", "+change": "minus undefended"}`: a
dot leads into a value, a plus sign gives a difference its sign.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import rich.table

from fedmia.report.tables import Table, TextCell, TextRow
from fedmia.report.words.numbers import DASH, estimate, interval, number

DIGITS = 3
MOST = 20  # letters of a word that no line of the terminal breaks
Columns = Mapping[str, str]  # path of a value in a row -> head
# What the head of a column says of the last part of its path; else it is that part.
HEADS = {
    "name": "point",
    "n": "models",
    "finished": "models",
    "auc": "mean AUC, 95 %",
    "tpr": "TPR at 1 % FPR, 95 %",
    "knn": "weighted kNN, 95 %",
    "linear": "linear probe, 95 %",
    "knn_after_attack": "kNN after the attack, 95 %",
    "p_holm": "p, Holm",
}


def heads(paths: str, own: Columns | None = None) -> dict[str, str]:
    """Columns under the heads that all views share.

    Args:
        paths: of the values in a row, with spaces between.
        own: heads of this table alone.

    Returns:
        Path of each value -> head.
    """
    ends = {path: path.rpartition(".")[2] for path in paths.split()}
    return {path: HEADS.get(end, end) for path, end in ends.items()} | dict(own or {})


def table(columns: Columns, rows: Iterable[Any]) -> Table:
    """The rows under the columns.

    Args:
        columns: path of a value in a row -> head.
        rows: nested mappings; `css`, where a row has it, is its class in the page's style.

    Returns:
        The table, as pages draw it.
    """
    lines = [TextRow([cell(row, path) for path in columns], row.get("css", "")) for row in rows]
    return Table([*columns.values()], lines)


def cell(row: Any, path: str, digits: int = DIGITS) -> str | TextCell:
    """How a value of a row reads: text, `1,200`, `0.612`, `0.612 [0.585, 0.635]`, or a dash.

    Args:
        row: nested mappings.
        path: of the value; a leading plus sign gives a difference its sign.
        digits: of a number behind its point.

    Returns:
        Text, or a number over its intervals.
    """
    value = row
    for key in path.removeprefix("+").split("."):
        value = None if value is None else value.get(key)
    if isinstance(value, Mapping):
        sign = "+" * path.startswith("+")
        return _estimate(value, sign, digits) if "mean" in value else _counts(value)
    if isinstance(value, list):
        texts = (one if isinstance(one, str) else number(one, digits) for one in value)
        return " ".join(texts) or DASH
    if isinstance(value, float):
        return number(value, digits)
    return f"{value:,}" if isinstance(value, int) else value or DASH


def _estimate(value: Mapping[str, Any], sign: str, digits: int) -> str | TextCell:
    """A mean with its interval; over its intervals where one is simultaneous. Behind it how many
    runs are void, and that models are all equal, which give no interval."""
    void = value.get("void", "")
    if value["mean"] is None:
        return f"{DASH} ({void})" if void else DASH
    equal = value["ci"] is None and value.get("n", 0) > 1
    more = [f"({text})" for text in (f"{value.get('n')} equal" * equal, void) if text]
    if "ci_simultaneous" in value:
        cis = (value["ci"], value["ci_simultaneous"])
        text = f"{value['mean']:{sign}.{digits}f}"
        return TextCell(text, (*(interval(ci, digits) for ci in cis if ci), *more))
    if not sign:
        return " ".join([estimate(value["mean"], value["ci"], digits), *more])
    mean, *ends = (f"{one:+.{digits}f}" for one in (value["mean"], *(value["ci"] or ())))
    return " ".join([mean, *([f"[{', '.join(ends)}]"] if ends else []), *more])


def _counts(counts: Mapping[str, int]) -> str:
    """How many models have what, as `leaks 2, collapsed 1`."""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or DASH


def screen(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Any:
    """A table of the terminal, whose first column shows equal cells once.

    Args:
        heads: of the columns.
        lines: cells of each row.

    Returns:
        The table of rich.
    """
    lines = [[text.replace(" (", "\n(") for text in line] for line in lines]
    grid = rich.table.Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for i, head in enumerate(heads):
        cells = [line[i] for line in lines]
        whole = any("[" in text for text in cells)  # an estimate and its interval: on one line
        words = "\n".join(cells).split("\n" if whole else None)
        least = min(max(map(len, words), default=0), MOST)
        wrapped = "\n".join(textwrap.wrap(head, max(least, MOST // 2)))
        grid.add_column(wrapped, overflow="fold", no_wrap=whole, min_width=least)
    last = None
    for first, *others in lines:
        grid.add_row("" if first == last else first, *others)
        last = first
    return grid
