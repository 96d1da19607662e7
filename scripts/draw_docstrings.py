"""Draw docstrings at random, to be read beside their code: python scripts/draw_docstrings.py.

It prints thirty public ones and thirty private ones of the packages: place, then the source. One
seed draws the same ones from the same code. A name is private where a part of its path begins with
an underscore.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEED, EACH = 42, 30
Owner = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def list_docstrings(folders: list[str]) -> dict[str, str]:
    """Source of every function and class that has a docstring, by its place."""
    sources: dict[str, str] = {}

    def visit(node: Owner, place: str, text: str) -> None:
        for child in node.body:
            if isinstance(child, Owner) and not isinstance(child, ast.Module):
                if ast.get_docstring(child):
                    code = ast.get_source_segment(text, child, padded=True) or ""
                    sources[f"{place}:{child.name} (line {child.lineno})"] = code
                visit(child, f"{place}:{child.name}", text)

    for file in sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        visit(ast.parse(text), file.relative_to(ROOT).as_posix(), text)
    return sources


def main() -> None:
    """Print the docstrings that are drawn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--each", type=int, default=EACH, help="how many of each kind")
    parser.add_argument("folders", nargs="*", default=["fedmia", "clients", "strategies"])
    arguments = parser.parse_args()
    sources = list_docstrings(arguments.folders)
    private = {place for place in sources if re.search(r"[/:]_(?!_)", place)}
    draw = random.Random(arguments.seed)
    for kind, places in (("public", sources.keys() - private), ("private", private)):
        for place in draw.sample(sorted(places), min(arguments.each, len(places))):
            print(f"=== {kind} {place}\n{sources[place]}\n")


if __name__ == "__main__":
    main()
