"""Lines of code by package: `python scripts/lines.py [ROOT]`.

A line of code holds a token that is neither a comment nor part of a docstring; a template's is not
blank. Python and templates are counted apart.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

PACKAGES = ("fedmia", "clients", "strategies", "papers")
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def docstring_lines(source: str) -> set[int]:
    """Numbers of the lines that docstrings take."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None:
            lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def code_lines(source: str) -> int:
    """How many lines of Python hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(source))


def area(path: Path) -> str:
    """`fedmia/report` of a file below it; `fedmia`, `clients`, .. of the others."""
    return "/".join(path.parts[: 2 if len(path.parts) > 2 and path.parts[0] == "fedmia" else 1])


def count(root: Path) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Lines of code, of templates, and all lines of Python, by area."""
    code: Counter[str] = Counter()
    templates: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            where = area(path.relative_to(root))
            if path.suffix == ".py":
                source = path.read_text(encoding="utf-8")
                code[where] += code_lines(source)
                every[where] += source.count("\n")
            elif path.suffix in (".j2", ".html", ".css"):
                text = path.read_text(encoding="utf-8")
                templates[where] += sum(bool(line.strip()) for line in text.splitlines())
    return code, templates, every


def main(root: Path) -> None:
    """Print a line an area, and the sum."""
    code, templates, every = count(root)
    print(f"{'area':<22}{'code':>7}{'templates':>11}{'all Python':>12}")
    for where in sorted(code):
        print(f"{where:<22}{code[where]:>7}{templates[where]:>11}{every[where]:>12}")
    print(f"{'sum':<22}{code.total():>7}{templates.total():>11}{every.total():>12}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
