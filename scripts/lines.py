"""Lines of code by area: `python scripts/lines.py [ROOT] [--most FILE]`.

A line of code holds a token that is neither a comment nor part of a docstring; one of YAML or of a
template is not blank. With `--most` it fails where an area has more lines than FILE allows, where a
file is longer than FILE's `file`, but for those that FILE lists with their length, and where more
statements stand on a line than FILE's `statements` (dense code is not less).
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

import yaml

PACKAGES = ("fedmia", "clients", "strategies", "papers")
BESIDE = {
    "tests": "tests",
    "benchmarks": "benchmarks and scripts",
    "scripts": "benchmarks and scripts",
}
TEXTS = (".j2", ".css", ".yaml")  # of the product, the presets among them
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


def statements(source: str) -> int:
    """How many statements and comprehensions, which hold one each, a source has."""
    kinds = (ast.stmt, ast.comprehension, ast.Lambda, ast.IfExp)
    return sum(isinstance(node, kinds) for node in ast.walk(ast.parse(source)))


def area(path: Path) -> str:
    """`fedmia/report` of a file below it; `fedmia` of one that lies there itself."""
    if path.parts[0] in BESIDE:
        return BESIDE[path.parts[0]]
    return "/".join(
        path.parts[:2] if path.parts[0] == "fedmia" and len(path.parts) > 2 else path.parts[:1]
    )


class Lines:
    """Lines of a tree.

    Args:
        root: of the tree.
    """

    def __init__(self, root: Path) -> None:
        self.areas: Counter[str] = Counter()
        self.files: dict[str, int] = {}
        self.statements = 0
        for folder in (*PACKAGES, *BESIDE):
            for path in sorted((root / folder).rglob("*.py")):
                self._count(path.relative_to(root), path.read_text(encoding="utf-8"))
        for folder in (*PACKAGES, "configs"):
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in TEXTS:
                    text = path.read_text(encoding="utf-8")
                    self.areas["YAML and templates"] += sum(
                        map(bool, map(str.strip, text.splitlines()))
                    )

    def _count(self, path: Path, source: str) -> None:
        self.areas[area(path)] += code_lines(source)
        if path.parts[0] in PACKAGES:
            self.statements += statements(source)
            self.files[path.as_posix()] = source.count("\n")

    def product(self) -> int:
        """Lines of code of the product's Python."""
        others = {*BESIDE.values(), "YAML and templates"}
        return sum(count for name, count in self.areas.items() if name not in others)

    def density(self) -> float:
        """Statements a line of the product's code."""
        return self.statements / self.product()


def faults(lines: Lines, most: dict) -> list[str]:
    """What is over its number, a line each.

    Args:
        lines: of the tree.
        most: `areas`, `files` that may be longer, `file` and `statements`.
    """
    over = [
        f"{name}: {count} lines, at most {most['areas'].get(name, 0)}"
        for name, count in sorted(lines.areas.items())
        if count > most["areas"].get(name, 0)
    ]
    for name, length in sorted(lines.files.items()):
        allowed = max(most["files"].get(name, 0), most["file"])
        if length > allowed:
            over.append(f"{name}: {length} lines, at most {allowed}")
    if lines.density() > most["statements"]:
        over.append(f"{lines.density():.4f} statements a line, at most {most['statements']}")
    return over


def main() -> int:
    """Print a line an area, and the sums; 1 where a number is over its most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--most", type=Path, help="YAML file of the largest numbers")
    arguments = parser.parse_args()
    lines = Lines(arguments.root)
    for name, count in sorted(lines.areas.items()):
        print(f"{name:<26}{count:>7}")
    print(f"{'product':<26}{lines.product():>7}   {lines.density():.4f} statements a line")
    if arguments.most is None:
        return 0
    over = faults(lines, yaml.safe_load(arguments.most.read_text(encoding="utf-8")))
    hint = "take out as much, or raise the number in a commit that says why"
    print("\n".join([*over, f"{arguments.most}: {hint}" if over else "no area is over its number"]))
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
