"""Checks every number of the pages of docs/ that give results, and writes their tables.

    python scripts/docs_numbers.py

A page gives results if it has one of the comments below. A number names the result file that it
stands in, by a comment after it in the same block of lines:

    kNN is .78 [.74, .83] <!-- from defences/tradeoff.json: points[label=gaussian scale=0.1].knn -->

Expressions, with `;` between them, give the numbers since the comment before in their order. A path
has keys, `[i]`, `[key=value]` (one row, or with more conditions, `,` between) and `[*]` (of every
row); `100*PATH` is a percentage, `min`, `max`, `mean`, `sum`, `count` of `(PATH)` summarise; a mean
with its interval is three numbers; `set` is no result but a setting, and so are all N numbers
before `<!-- set N -->`. `<!-- table NAME -->` stands before a table that this command writes
(scripts/docs_tables.py), in the README too. What is exempt stands in FREE.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SET = "set"

# Numbers that are no results.
FREE = (
    r"`[^`\n]*`",  # names, options and their values
    r"\]\([^)]*\)",  # where a link leads
    r"\b(?:19|20)\d\d\b",  # years
    r"\b95 %",  # the level of the intervals
    r"\bp <= 0\.05\b",  # likewise, of tests
    r"\b\d+ % FPR\b",
    r"\b\d{4}\.\d{5}\b",  # arXiv
    r"\b(?:Figs?|Tables?|Secs?|Eqs?|App|Algorithm|seeds?)\b\.?(?: [\dA-Z][\w.-]*(?:,| to| and)?)+",
    r"\b[A-Za-z]\w*-\d+(?:/\d+)?\b",  # ResNet-18
)
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\d|\d)?\.?\d+(?:e[-+]?\d+)?(?!\w)")
MARKER = re.compile(r"<!-- (?:from\s+(.*?)|set\s+(\d+))\s+-->", re.DOTALL)
TABLE = re.compile(r"<!-- table ([\w-]+) -->")
PAGES = tuple(
    str(page.relative_to(ROOT))
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if any(kind.search(page.read_text(encoding="utf-8")) for kind in (MARKER, TABLE))
)
SUMMARIES: dict[str, Callable[[list[float]], float]] = {
    "min": min, "max": max, "mean": fmean, "sum": sum, "count": len,
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """Lines without a blank one between them: number of the first one, and the text."""

    line: int
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, without those of code."""
    page = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), page, flags=re.S | re.M)
    line = 1
    for part in re.split(r"(\n\s*\n)", page):
        if part.strip():
            yield Block(line + len(part) - len(part.lstrip("\n")), part.strip("\n"))
        line += part.count("\n")


@functools.cache
def result(name: str) -> Any:
    """A result file."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def steps(path: str) -> Iterator[str]:
    """Keys and brackets of a path in their order."""
    for step in re.finditer(r"\[([^\]]*)\]|\"([^\"]*)\"|([^.\[\"]+)", path):
        yield f"[{step[1]}" if step[1] is not None else step[2] or step[3]


def walk(value: Any, path: list[str]) -> Any:
    """What stands at a path.

    Raises:
        LookupError: nothing does, or several rows meet the conditions.
    """
    if not path:
        return value
    step, *rest = path
    if not step.startswith("["):
        return walk(value[step], rest)
    inner = step[1:]
    if inner == "*":
        rows = value.values() if isinstance(value, dict) else value
        return [walk(row, rest) for row in rows]
    if inner.lstrip("-").isdigit():
        return walk(value[int(inner)], rest)
    conditions = [condition.partition("=")[::2] for condition in inner.split(",")]
    rows = [row for row in value if all(as_text(row.get(k)) == v for k, v in conditions)]
    if len(rows) != 1:
        raise LookupError(f"[{inner}] is true of {len(rows)} rows")
    return walk(rows[0], rest)


def as_text(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def flat(value: Any) -> list[float]:
    """The numbers of a value; of a mean over models it and its interval."""
    if isinstance(value, dict):
        return [value["mean"], *(value["ci"] or ())]
    if isinstance(value, list | tuple):
        return [number for one in value for number in flat(one)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LookupError(f"{value!r} is no number")
    return [float(value)]


def values(file: str, expression: str) -> list[float | None]:
    """Numbers that an expression gives; None for a setting."""
    if expression == SET:
        return [None]
    scale = 1.0
    if expression.startswith("100*"):
        scale, expression = 100.0, expression.removeprefix("100*")
    summary = re.fullmatch(r"(\w+)\((.*)\)", expression)
    value = walk(result(file), list(steps(summary[2] if summary else expression)))
    if summary and summary[1] == "count":
        return [float(len(value))]
    numbers = flat(value)
    return [scale * n for n in ([SUMMARIES[summary[1]](numbers)] if summary else numbers)]


def says(token: str, value: float) -> bool:
    """Whether a printed number is `value`, rounded to the digits printed."""
    text = token.replace(",", "")
    mantissa, _, exponent = text.partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(text) - value) <= half * (1 + 1e-6) + 1e-12


def bare(text: str) -> str:
    """The text with all that is exempt blanked."""
    for kind in FREE:
        text = re.sub(kind, lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    return text


def complaints(name: str, page: str) -> Iterator[str]:
    """What is wrong with the numbers of a page, a line each."""
    for block in blocks(page):
        if TABLE.match(block.text):
            continue
        text, ends = block.text, 0
        for marker in MARKER.finditer(text):
            tokens = NUMBER.findall(bare(text[ends : marker.start()]))
            listed = marker[1] or "; ".join([SET] * int(marker[2]))
            yield from (f"{name}:{block.line}: {c}" for c in _compare(tokens, listed))
            ends = marker.end()
        unmarked = NUMBER.findall(bare(re.sub(r"<!--.*?-->", "", text[ends:], flags=re.S)))
        if unmarked:
            yield f"{name}:{block.line}: no result file is named for {', '.join(unmarked)}"


def _compare(tokens: list[str], marker: str) -> Iterator[str]:
    expected: list[tuple[str, float | None]] = []
    for part in marker.split("|"):
        file, _, listed = (" ".join(part.split())).rpartition(": ")
        for expression in (e.strip() for e in listed.split(";")):
            try:
                expected += [(f"{file}: {expression}", v) for v in values(file, expression)]
            except (LookupError, OSError, TypeError, ValueError) as error:
                yield f"{file}: {expression}: {error!r}"
                return
    if len(tokens) != len(expected):
        yield f"{len(tokens)} numbers ({', '.join(tokens)}) for {len(expected)} values: {marker}"
        return
    for token, (where, value) in zip(tokens, expected, strict=True):
        if value is not None and not says(token, value):
            yield f"{token} is {value:.6g} in {where}"


def written(page: str, tables: dict[str, Callable[[], str]]) -> str:
    """The page with its tables made anew.

    Args:
        tables: what each name that stands in a comment writes, without a last newline.
    """

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables[match[2]]()}\n"

    return re.sub(r"(<!-- table ([\w-]+) -->)\n(?:\|.*\n)*", table, page)


def main() -> int:
    sys.path.insert(0, str(ROOT / "scripts"))
    from docs_tables import TABLES

    wrong: list[str] = []
    for name in ("README.md", *PAGES):
        path = ROOT / name
        page = written(path.read_text(encoding="utf-8"), TABLES)
        path.write_text(page, encoding="utf-8")
        if name in PAGES:
            wrong += complaints(name, page)
    print("\n".join(wrong) or "every number of these pages is that of its file")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
